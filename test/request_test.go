package test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

const parentTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// requestCases are messages of TestRequest by their ids, without them.
func requestCases(t *testing.T) map[string]amqp.Publishing {
	big := bytes.Repeat([]byte("\x00\xff\r\n"), 16<<10)
	return map[string]amqp.Publishing{
		"": {},
		"full": {
			ContentType: "text/plain; charset=utf-8", CorrelationId: "corr-1", ReplyTo: "reply.queue", Type: "order.created", AppId: "shop",
			UserId: brokerUser(t), Priority: 7, Expiration: "600000", Timestamp: time.Date(2024, 2, 29, 23, 59, 58, 0, time.UTC),
		},
		"encoded": {Body: []byte("\x1f\x8b\xff"), ContentType: "application/json", ContentEncoding: "gzip"},
		"request": {Body: []byte("POST / HTTP/1.1\r\nHost: x\r\n\r\n"), ContentType: "message/http"},
		"largest": {Body: big},
		"larger":  {Body: append(big, 'x')},
		"traced":  {Headers: amqp.Table{"traceparent": parentTrace, "tracestate": "a=1", "authorization": "Basic forged"}},
		"crlf":    {Headers: amqp.Table{"traceparent": parentTrace + "\r\nX-Injected: 1"}},
	}
}

// TestRequest: each message is one POST to the configured URL with its body and properties, and no others, whatever the
// environment says of proxies. A body over SIDECAR_MAX_BODY is parked without a POST.
func TestRequest(t *testing.T) {
	t.Parallel()
	sink := newApp(t)
	sc := newScene(t).with("MAX_BODY", "64KiB", "APP_TOKEN", "canary-app-token").seed()
	l := listen(t, net.JoinHostPort(ownAddress(t), "0")) // Go itself never proxies loopback
	sc.app.Shut()
	sc.app.Serve(l)
	sc.with("APP_URL", "http://"+l.Addr().String()+"/in/box?source=amqp")
	for _, k := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		sc.env[k] = sink.url()
	}
	cases := requestCases(t)
	for id, m := range cases {
		m.MessageId = id
		sc.sendMessage(m)
	}
	sc.publish("", sc.queue(), message("direct"))
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	if h := d.Headers; d.MessageId != "larger" || len(d.Body) != 64<<10+1 || h["x-final-reason"] != "too_large" || h["x-final-status-code"] != nil {
		t.Errorf("parked %q with %d bytes and %v", d.MessageId, len(d.Body), h)
	}
	agent := "amqp-sidecar/" + strings.Fields(command(t, nil, "version").stdout)[1]
	for id, m := range cases {
		if id == "larger" {
			continue
		}
		got := sc.app.await(id, 1)[0]
		if got.Method != http.MethodPost || got.Target != "/in/box?source=amqp" || got.Header.Get("Host") != l.Addr().String() || !bytes.Equal(got.Body, m.Body) {
			t.Errorf("%q: %s %s to %s with %d bytes", id, got.Method, got.Target, got.Header.Get("Host"), len(got.Body))
		}
		checkHeaders(t, id, got, map[string]string{
			"Content-Length": strconv.Itoa(len(m.Body)), "User-Agent": agent, "Authorization": "Bearer canary-app-token",
			"Amqp-Queue": sc.queue(), "Amqp-Exchange": sc.exchange(), "Amqp-Routing-Key": "order.created",
		})
	}
	checkRequests(t, sc.app)
	if sink.total() > 0 || len(sc.app.Seen("larger")) > 0 || s.log.mentions("canary-app-token") {
		t.Error("a proxy or the app got a message that it must not get, or the log has the token")
	}
	sc.settledAll(s, 0)
}

// checkHeaders wants each header once, with that value.
func checkHeaders(t *testing.T, id string, d *delivery, want map[string]string) {
	t.Helper()
	for name, v := range want {
		if got := d.Header.Values(name); !slices.Equal(got, []string{v}) {
			t.Errorf("%q: %s is %q, want %q once", id, name, got, v)
		}
	}
}

// checkRequests checks what differs between the requests of TestRequest.
func checkRequests(t *testing.T, a *app) {
	t.Helper()
	checkHeaders(t, "direct", a.await("direct", 1)[0], map[string]string{"Amqp-Exchange": "", "Content-Type": "application/json"})
	checkHeaders(t, "full", a.Seen("full")[0], map[string]string{
		"Amqp-Message-Id": "full", "Amqp-Correlation-Id": "corr-1", "Amqp-Reply-To": "reply.queue", "Amqp-Type": "order.created",
		"Amqp-App-Id": "shop", "Amqp-User-Id": brokerUser(t), "Amqp-Priority": "7", "Amqp-Expiration": "600000",
		"Amqp-Timestamp": "2024-02-29T23:59:58Z", "Content-Type": "text/plain; charset=utf-8",
		"Amqp-Delivery-Attempt": "1", "Amqp-Retry-Count": "0", "Amqp-Max-Retries": "10", "Amqp-Redelivered": "false",
	})
	checkHeaders(t, "encoded", a.Seen("encoded")[0], map[string]string{"Content-Type": "application/json", "Content-Encoding": "gzip"})
	checkHeaders(t, "traced", a.Seen("traced")[0], map[string]string{"Traceparent": parentTrace, "Tracestate": "a=1"})
	if h := a.Seen("crlf")[0].Header; strings.Contains(h.Get("Traceparent"), "4bf92f3577b34da6") || h.Get("X-Injected") != "" {
		t.Errorf("an invalid trace context became %v", h)
	}
	names := slices.Sorted(maps.Keys(a.Seen("")[0].Header))
	if want := []string{
		"Amqp-Delivery-Attempt", "Amqp-Exchange", "Amqp-Max-Retries", "Amqp-Queue", "Amqp-Redelivered", "Amqp-Retry-Count", "Amqp-Routing-Key",
		"Authorization", "Content-Length", "Content-Type", "Host", "Traceparent", "User-Agent",
	}; !slices.Equal(names, want) || a.Seen("")[0].Header.Get("Content-Type") != "application/octet-stream" {
		t.Errorf("a message without properties has %q", names)
	}
}

func ownAddress(t testing.TB) string {
	t.Helper()
	for _, a := range must.Get(net.InterfaceAddrs())(t) {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && n.IP.IsGlobalUnicast() {
			return n.IP.String()
		}
	}
	return "127.0.0.1"
}

// TestAppBehindTLS with a certificate of the system's store gets CloudEvents.
func TestAppBehindTLS(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "CLOUDEVENTS", "binary").seed()
	l := listen(t, "127.0.0.1:0")
	cert, _ := apptest.Certificate(t)
	sc.app.Shut()
	sc.app.Serve(tls.NewListener(l, cert))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	must.Do(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificates[0].Certificate[0]}), 0o600))
	sc.with("APP_URL", "https://"+l.Addr().String()+"/in")
	sc.env["SSL_CERT_FILE"] = ca
	sc.app.on("bad", status(500))
	good := message("good")
	good.Headers = amqp.Table{"cloudEvents:id": "e-1", "cloudEvents:source": "/shop", "cloudEvents:type": "t", "cloudEvents:specversion": "1.0"}
	sc.sendMessage(good, message("bad"))
	s := sc.run()
	checkHeaders(t, "good", sc.app.await("good", 1)[0], map[string]string{"Ce-Id": "e-1", "Ce-Source": "/shop", "Ce-Type": "t", "Ce-Specversion": "1.0"})
	if d := sc.take(sc.dlq(), 1)[0]; d.MessageId != "bad" || len(sc.app.Seen("bad")) != 2 {
		t.Errorf("parked %q after %d attempts", d.MessageId, len(sc.app.Seen("bad")))
	}
	sc.settledAll(s, 0)
}

// TestHeaders: what the broker's client reads from a message becomes text in the request, or is left out and counted. Every
// shape of name and value is in the tables of package dispatch; no line of the request but Amqp-Header-* comes from them,
// and what is passed through has its own name, too.
func TestHeaders(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("PASSTHROUGH_HEADERS", "x-tenant").seed()
	s := sc.run()
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
	r := sc.app.await("m", 1)[0]
	for _, line := range r.Lines() {
		name, value, _ := strings.Cut(line, ": ")
		name, own := strings.CutPrefix(strings.ToLower(name), "amqp-header-")
		switch text, known := want[name]; {
		case own && (!known || value != text), !own && strings.Contains(value, "forged"), name == "x-injected":
			t.Errorf("%.100q, want %.100q", line, text)
		}
	}
	for name := range want {
		if n := len(r.Values("Amqp-Header-" + name)); n != 1 {
			t.Errorf("Amqp-Header-%s came %d times", name, n)
		}
	}
	if got := r.Values("X-Tenant"); !slices.Equal(got, []string{"acme"}) {
		t.Errorf("X-Tenant %q, want acme once", got)
	}
	if n := s.metric("sidecar_headers_truncated_total"); n != 3 || r.Header.Get("Amqp-Headers-Truncated") != "3" {
		t.Errorf("%v headers counted as left out, want 3: without a name, too long, a second of one name", n)
	}
	sc.settledAll(s, 0)
}

// TestHostileProperties: ids, types, times and routing keys that break out of neither the request nor the log.
func TestHostileProperties(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("FORWARD_HEADERS", "x-keep-*").seed()
	s := sc.run()
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
		r := sc.app.await(id, 1)[0]
		for name, want := range headers {
			if got, err := url.PathUnescape(r.Header.Get(name)); err != nil || got != want {
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
	all := sc.app.Requests()
	for _, r := range all {
		if r.Values("X-Injected") != nil || !strings.HasPrefix(r.Head(), "POST / HTTP/1.1\r\n") {
			t.Errorf("a property broke out:\n%s", r.Head())
		}
	}
	if len(all) != 4 {
		t.Errorf("%d requests, want 4", len(all))
	}
}
