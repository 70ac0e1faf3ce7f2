package test

import (
	"bytes"
	"crypto/tls"
	"encoding/pem"
	"maps"
	"net"
	"net/http"
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
		"chosen":  {Headers: amqp.Table{"x-keep-me": "1", "other": "2", "x-tenant": "acme", "x-keep-crlf": "a\r\nX-Injected: 1"}},
	}
}

// TestRequest: each message is one POST to the configured URL with its body and properties, and no others, whatever the
// environment says of proxies. A body over SIDECAR_MAX_BODY is parked without a POST.
func TestRequest(t *testing.T) {
	t.Parallel()
	sink := newApp(t)
	sc := newScene(t).with("MAX_BODY", "64KiB", "APP_TOKEN", "canary-app-token", "PASSTHROUGH_HEADERS", "x-tenant", "FORWARD_HEADERS", "x-keep-*").seed()
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
	checkHeaders(t, "chosen", a.Seen("chosen")[0], map[string]string{
		"X-Tenant": "acme", "Amqp-Header-X-Keep-Me": "1", "Amqp-Header-X-Keep-Crlf": "a%0D%0AX-Injected: 1",
	})
	if h := a.Seen("chosen")[0].Header; h.Get("Amqp-Header-Other")+h.Get("X-Injected") != "" {
		t.Errorf("not to be forwarded: %v", h)
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
