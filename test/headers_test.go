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

func (sc *scene) sendHeaders(id string, h amqp.Table) {
	sc.t.Helper()
	m := message(id)
	m.Headers = h
	sc.sendMessage(m)
}

// TestHeaders: what the broker's client reads from a message becomes text in the request. Every shape of name and value
// is in the tables of package dispatch; here is one of each kind, and no line of the request but Amqp-Header-* comes
// from them.
func TestHeaders(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	const evil = "forged\r\nX-Injected: 1"
	h := amqp.Table{
		"x-foo_bar.baz qux": "names", "crlf": evil, "a\r\nX-Injected: 1\r\nb": "name", "utf8": "größe 100%", "latin1": "\xe9", "": "forged",
		"int8": int8(-128), "int64": int64(-1 << 63), "uint8": uint8(255), "true": true, "time": time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC),
		"bytes": []byte("text"), "binary": []byte{0xff, 0x00, 0xfe}, "f32": float32(1.5), "f64": 0.1, "huge": 1e300, "void": nil,
		"decimal": amqp.Decimal{Scale: 2, Value: 1234}, "array": []any{amqp.Table{"k": evil}, "größe", 1.5, []byte("text")}, "none": []any{},
		"table": amqp.Table{"a": "x", "n": int32(7), "t": true, "nil": nil, "deep": amqp.Table{"b": []any{"y", int64(2)}}}, "empty": amqp.Table{},
		"x-a": "not this", "X-A": "this, of two that become one name", "over": strings.Repeat("v", 2049), "edge": strings.Repeat("v", 2048),
		"Host": evil, "Content-Length": evil, "Transfer-Encoding": evil, "Connection": evil, "Authorization": evil, "Cookie": evil,
		"X-Forwarded-For": evil, "Idempotency-Key": evil, "User-Agent": evil, "Amqp-Retry-Count": evil, "Amqp-Message-Id": evil,
		"x-first-death-queue": "q", "x-last-death-reason": "rejected", "x-delivery-count": int64(1), "x-acquired-count": int64(1),
		"x-final-status-code": int64(500), "x-redriven-by": "me", "x-retry-queue": "q",
	}
	want := map[string]string{
		"x-foo-bar-baz-qux": "names", "crlf": "forged%0D%0AX-Injected: 1", "ax-injected-1b": "name", "utf8": "gr%C3%B6%C3%9Fe 100%25", "latin1": "%E9",
		"int8": "-128", "int64": "-9223372036854775808", "uint8": "255", "true": "true", "time": "2030-01-02T03:04:05Z",
		"bytes": "text", "binary": "/wD+", "f32": "1.5", "f64": "0.1", "huge": "1e+300", "void": "",
		"decimal": "12.34", "array": `[{"k":"forged\r\nX-Injected: 1"},"gr%C3%B6%C3%9Fe",1.5,"text"]`, "none": "[]",
		"table": `{"a":"x","deep":{"b":["y",2]},"n":7,"nil":null,"t":true}`, "empty": "{}",
		"x-a": "this, of two that become one name", "edge": strings.Repeat("v", 2048),
	}
	for _, name := range []string{
		"host", "content-length", "transfer-encoding", "connection", "authorization", "cookie", "x-forwarded-for", "idempotency-key", "user-agent",
		"amqp-retry-count", "amqp-message-id",
	} {
		want[name] = want["crlf"]
	}
	for range 5 { // the order of a table is another one each time
		sc.sendHeaders("m", h)
	}
	for _, r := range raw.await("m", 5) {
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
		if n := r.value("Amqp-Headers-Truncated"); n != "3" {
			t.Errorf("%s headers counted as left out, want 3: without a name, too long, a second of one name", n)
		}
	}
	if n := s.metric("sidecar_headers_truncated_total"); n != 15 {
		t.Errorf("sidecar_headers_truncated_total is %v", n)
	}
	sc.settledAll(s, 0)
}

func TestForwardAndPassthrough(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t, "FORWARD_HEADERS", "x-keep-*,exact", "PASSTHROUGH_HEADERS", "traceparent,x-tenant")
	sc.sendHeaders("a", amqp.Table{"x-keep-me": "1", "exact": "2", "other": "3", "x-tenant": "t\r\nX-Injected: 1", "tracestate": "a=1"})
	r := raw.await("a", 1)[0]
	if r.value("Amqp-Header-X-Keep-Me") != "1" || r.value("Amqp-Header-Exact") != "2" {
		t.Errorf("listed headers are missing:\n%s", r.head)
	}
	if r.values("Amqp-Header-Other") != nil {
		t.Error("a header that is not listed was forwarded")
	}
	if len(r.values("X-Tenant")) > 1 || r.values("X-Injected") != nil {
		t.Errorf("the passed-through header broke out:\n%s", r.head)
	}
	sc.sendHeaders("b", amqp.Table{"x-tenant": "acme"})
	if got := raw.await("b", 1)[0].values("X-Tenant"); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("X-Tenant %q, want acme once", got)
	}
	sc.settledAll(s, 0)
}

// TestHostileProperties: ids, types, times and routing keys that break out of neither the request nor the log.
func TestHostileProperties(t *testing.T) {
	t.Parallel()
	sc, raw, s := headerScene(t)
	const evil = "a\r\nX-Injected: 1\r\n\r\nPOST /evil HTTP/1.1\r\n\x00\x7fü%"
	sc.sendMessage(
		amqp.Publishing{MessageId: "props", ContentType: evil, ContentEncoding: evil, CorrelationId: evil, ReplyTo: evil, Type: evil, AppId: evil},
		amqp.Publishing{MessageId: evil, CorrelationId: "evil-id"},
		amqp.Publishing{MessageId: "times", Timestamp: time.Unix(253402300799, 0), Priority: 255},
		amqp.Publishing{MessageId: "zero", Timestamp: time.Unix(0, 0)},
		amqp.Publishing{MessageId: "far", Timestamp: time.Unix(1<<63-1, 0)},
		amqp.Publishing{MessageId: "negative", Timestamp: time.Unix(-1, 0)},
	)
	sc.publish(sc.exchange(), evil, message("evilkey"))
	sc.publish(sc.exchange(), "", message("nokey"))
	for id, headers := range map[string]map[string]string{
		"props":   {"Amqp-Correlation-Id": evil, "Amqp-Reply-To": evil, "Amqp-Type": evil, "Amqp-App-Id": evil},
		"times":   {"Amqp-Timestamp": "9999-12-31T23:59:59Z", "Amqp-Priority": "255"},
		"zero":    {"Amqp-Timestamp": "1970-01-01T00:00:00Z"},
		"evilkey": {"Amqp-Routing-Key": evil}, "nokey": {"Amqp-Routing-Key": ""}, "far": nil, "negative": nil,
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
	if len(all) != 8 {
		t.Errorf("%d requests, want 8", len(all))
	}
}
