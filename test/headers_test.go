package test

import (
	"encoding/json"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// headerScene runs a sidecar against a raw app that takes everything.
func headerScene(t *testing.T, pairs ...string) (*scene, *rawApp, *sidecar) {
	t.Helper()
	raw := newRawApp(t, func(c net.Conn, _ *rawRequest) bool { return say(c, ok200) })
	sc := newScene(t).with("APP_URL", raw.url()).with(pairs...).seed()
	return sc, raw, sc.run()
}

// TestHeaders: what the broker's client reads from a message becomes text in the request, or is left out and counted. Every
// shape of name and value is in the tables of package dispatch; no line of the request but Amqp-Header-* comes from them,
// and what is passed through has its own name, too.
func TestHeaders(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t, "PASSTHROUGH_HEADERS", "x-tenant")
	const evil = "forged\r\nX-Injected: 1"
	m := message("m")
	m.Headers = amqp.Table{
		"x-foo_bar.baz qux": "names", "crlf": evil, "a\r\nX-Injected: 1\r\nb": "name", "utf8": "größe 100%", "": "forged", "int64": int64(-1 << 63),
		"time": time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC), "binary": []byte{0xff, 0x00, 0xfe}, "void": nil, "array": []any{amqp.Table{"k": evil}, 1.5},
		"x-a": "not this", "X-A": "this, of two that become one name", "over": strings.Repeat("v", 2049), "x-tenant": "acme",
		"Host": evil, "Transfer-Encoding": evil, "Authorization": evil, "Amqp-Retry-Count": evil,
		"x-delivery-count": int64(1), "x-final-status-code": int64(500), "x-redriven-by": "me", "x-retry-queue": "q",
	}
	want := map[string]string{
		"x-foo-bar-baz-qux": "names", "crlf": "forged%0D%0AX-Injected: 1", "ax-injected-1b": "name", "utf8": "gr%C3%B6%C3%9Fe 100%25",
		"int64": "-9223372036854775808", "time": "2030-01-02T03:04:05Z", "binary": "/wD+", "void": "", "array": `[{"k":"forged\r\nX-Injected: 1"},1.5]`,
		"x-a": "this, of two that become one name",
	}
	for _, name := range []string{"host", "transfer-encoding", "authorization", "amqp-retry-count"} {
		want[name] = want["crlf"]
	}
	sc.sendMessage(m)
	r := raw.await("m", 1)[0]
	for _, line := range r.lines {
		name, value, _ := strings.Cut(line, ": ")
		name, own := strings.CutPrefix(strings.ToLower(name), "amqp-header-")
		switch text, known := want[name]; {
		case own && (!known || value != text), !own && strings.Contains(value, "forged"), name == "x-injected":
			t.Errorf("%.100q, want %.100q", line, text)
		}
	}
	for name := range want {
		if n := len(r.values("Amqp-Header-" + name)); n != 1 {
			t.Errorf("Amqp-Header-%s came %d times", name, n)
		}
	}
	if got := r.values("X-Tenant"); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("X-Tenant %q, want acme once", got)
	}
	if n := s.metric("sidecar_headers_truncated_total"); n != 3 || r.value("Amqp-Headers-Truncated") != "3" {
		t.Errorf("%v headers counted as left out, want 3: without a name, too long, a second of one name", n)
	}
	sc.settledAll(s, 0)
}

// TestHostileProperties: ids, types, times and routing keys that break out of neither the request nor the log.
func TestHostileProperties(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t, "FORWARD_HEADERS", "x-keep-*")
	const evil = "a\r\nX-Injected: 1\r\n\r\nPOST /evil HTTP/1.1\r\n\x00\x7fü%"
	sc.sendMessage(
		amqp.Publishing{MessageId: "props", ContentType: evil, ContentEncoding: evil, CorrelationId: evil, ReplyTo: evil, Type: evil, AppId: evil},
		amqp.Publishing{MessageId: evil, CorrelationId: "evil-id"},
		amqp.Publishing{MessageId: "far", Timestamp: time.Unix(1<<63-1, 0)},
	)
	chosen := message("evilkey")
	chosen.Headers = amqp.Table{"x-keep-me": "1", "other": "2"}
	sc.publish(sc.exchange(), evil, chosen)
	for id, headers := range map[string]map[string]string{
		"props":   {"Amqp-Correlation-Id": evil, "Amqp-Reply-To": evil, "Amqp-Type": evil, "Amqp-App-Id": evil},
		"evilkey": {"Amqp-Routing-Key": evil, "Amqp-Header-X-Keep-Me": "1", "Amqp-Header-Other": ""}, "far": nil,
	} {
		r := raw.await(id, 1)[0]
		for name, want := range headers {
			if got, err := url.PathUnescape(r.value(name)); err != nil || got != want {
				t.Errorf("%s: %s reads back as %q: %v", id, name, got, err)
			}
		}
	}
	sc.settledAll(s, 0)
	for l := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(l)) {
			t.Errorf("a property broke a log line: %q", l)
		}
	}
	all := raw.all()
	for _, r := range all {
		if r.values("X-Injected") != nil || !strings.HasPrefix(r.head, "POST / HTTP/1.1\r\n") {
			t.Errorf("a property broke out:\n%s", r.head)
		}
	}
	if len(all) != 4 {
		t.Errorf("%d requests, want 4", len(all))
	}
}
