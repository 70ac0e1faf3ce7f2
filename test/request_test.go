package test

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"crypto/tls"
	"encoding/pem"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

func gzipped(t testing.TB, b []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	_, _ = w.Write(b)
	must.Do(t, w.Close())
	return buf.Bytes()
}

// TestBodyArrivesByteForByte: empty, NUL, large, not UTF-8, compressed.
func TestBodyArrivesByteForByte(t *testing.T) {
	t.Parallel()
	raw := newRawApp(t, func(c net.Conn, _ *rawRequest) bool { return say(c, ok200) })
	sc := newScene(t).with("APP_URL", raw.url()).seed()
	big := make([]byte, 1<<20)
	_, _ = rand.Read(big)
	bodies := map[string]amqp.Publishing{
		"empty":   {},
		"nul":     {Body: []byte{0}},
		"1MiB":    {Body: big},
		"notutf8": {Body: []byte("\xff\xfe{\xc3\x28}"), ContentType: "application/json"},
		"gzip":    {Body: gzipped(t, []byte(`{"a":1}`)), ContentType: "application/json", ContentEncoding: "gzip"},
		"crlf":    {Body: []byte("POST / HTTP/1.1\r\nHost: x\r\n\r\n"), ContentType: "message/http"},
	}
	s := sc.run()
	for id, m := range bodies {
		m.MessageId = id
		sc.sendMessage(m)
	}
	for id, m := range bodies {
		r := raw.await(id, 1)[0]
		if !bytes.Equal(r.body, m.Body) {
			t.Errorf("%s: %d bytes arrived, %d were published, or they differ", id, len(r.body), len(m.Body))
		}
		if got := r.value("Content-Length"); got != strconv.Itoa(len(m.Body)) {
			t.Errorf("%s: Content-Length %q, want %d", id, got, len(m.Body))
		}
		if te := r.values("Transfer-Encoding"); te != nil {
			t.Errorf("%s: Transfer-Encoding %q", id, te)
		}
		want := m.ContentType
		if want == "" {
			want = "application/octet-stream"
		}
		if got := r.values("Content-Type"); !slices.Equal(got, []string{want}) {
			t.Errorf("%s: Content-Type %q, want %q once", id, got, want)
		}
		if got := r.value("Content-Encoding"); got != m.ContentEncoding {
			t.Errorf("%s: Content-Encoding %q, want %q", id, got, m.ContentEncoding)
		}
	}
	sc.settledAll(s, 0)
}

// TestRequestLine: POST, the configured path, the app's own host, our name.
func TestRequestLine(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.with("APP_URL", sc.app.url()+"in/box?source=amqp")
	sc.send("a")
	sc.run()
	d := sc.app.await("a", 1)[0]
	if d.method != "POST" || d.uri != "/in/box?source=amqp" {
		t.Errorf("%s %s, want POST /in/box?source=amqp", d.method, d.uri)
	}
	if d.host != sc.app.addr {
		t.Errorf("Host %q, want %q", d.host, sc.app.addr)
	}
	agent, ok := strings.CutPrefix(d.header.Get("User-Agent"), "amqp-sidecar/")
	if version := command(t, nil, "version").stdout; !ok || agent == "" || !strings.Contains(version, agent) {
		t.Errorf("User-Agent %q does not name the version of %q", d.header.Get("User-Agent"), version)
	}
}

// TestEveryPropertyBecomesAHeader and none is invented.
func TestEveryPropertyBecomesAHeader(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.sendMessage(amqp.Publishing{
		MessageId: "full", ContentType: "text/plain; charset=utf-8", CorrelationId: "corr-1", ReplyTo: "reply.queue", Type: "order.created",
		AppId: "shop", UserId: brokerUser(t), Priority: 7, Expiration: "600000", Timestamp: time.Date(2024, 2, 29, 23, 59, 58, 0, time.UTC),
	})
	sc.run()
	h := sc.app.await("full", 1)[0].header
	want := map[string]string{
		"Amqp-Message-Id": "full", "Amqp-Correlation-Id": "corr-1", "Amqp-Reply-To": "reply.queue", "Amqp-Type": "order.created",
		"Amqp-App-Id": "shop", "Amqp-User-Id": brokerUser(t), "Amqp-Priority": "7", "Amqp-Expiration": "600000",
		"Amqp-Timestamp": "2024-02-29T23:59:58Z", "Amqp-Queue": sc.queue(), "Amqp-Exchange": sc.exchange(),
		"Amqp-Routing-Key": "order.created", "Amqp-Delivery-Attempt": "1", "Amqp-Retry-Count": "0", "Amqp-Max-Retries": "10",
		"Amqp-Redelivered": "false", "Content-Type": "text/plain; charset=utf-8",
	}
	for k, v := range want {
		if got := h.Values(k); !slices.Equal(got, []string{v}) {
			t.Errorf("%s: %q, want %q once", k, got, v)
		}
	}
	for _, k := range []string{"Amqp-Last-Attempt", "Amqp-Headers-Truncated"} {
		if v, there := h[k]; there {
			t.Errorf("%s: %q on a first delivery", k, v)
		}
	}
}

func TestNoPropertyIsInvented(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.sendMessage(amqp.Publishing{Body: []byte("x")})
	sc.run()
	h := sc.app.await("", 1)[0].header
	always := []string{
		"Amqp-Queue", "Amqp-Exchange", "Amqp-Routing-Key", "Amqp-Delivery-Attempt", "Amqp-Retry-Count", "Amqp-Max-Retries", "Amqp-Redelivered",
		"Content-Type", "Content-Length", "User-Agent", "Traceparent",
	}
	for _, k := range always {
		if len(h.Values(k)) != 1 {
			t.Errorf("%s: %q, want it once", k, h.Values(k))
		}
	}
	for _, k := range slices.Sorted(maps.Keys(h)) {
		if !slices.Contains(always, k) {
			t.Errorf("%s: %q was invented", k, h[k])
		}
	}
}

// TestMessageFromTheDefaultExchange: no fanout, an empty exchange name.
func TestMessageFromTheDefaultExchange(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.publish("", sc.queue(), message("direct"))
	s := sc.run()
	h := sc.app.await("direct", 1)[0].header
	if h.Get("Amqp-Exchange") != "" || h.Get("Amqp-Routing-Key") != sc.queue() {
		t.Errorf("exchange %q key %q, want the default exchange and the queue's name", h.Get("Amqp-Exchange"), h.Get("Amqp-Routing-Key"))
	}
	sc.settledAll(s, 0)
}

// TestNoProxyFromTheEnvironment uses an address of this machine that is not loopback if there is one: Go itself never
// proxies loopback.
func TestNoProxyFromTheEnvironment(t *testing.T) {
	t.Parallel()
	sink := newApp(t)
	sc := newScene(t).seed()
	l := listen(t, net.JoinHostPort(ownAddress(t), "0"))
	outer := newApp(t)
	outer.down()
	outer.serve(l)
	sc.with("APP_URL", "http://"+l.Addr().String()+"/")
	for _, k := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"} {
		sc.env[k] = sink.url()
	}
	sc.send("a")
	sc.run()
	outer.await("a", 1)
	if sink.total() > 0 {
		t.Error("a message went to the proxy of the environment")
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

func TestAppBehindAUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sc := newScene(t).with("APP_URL", "unix://"+path+":/in/box").seed()
	sc.app.down()
	sc.app.serve(l)
	sc.send("a", "b")
	s := sc.run()
	sc.app.awaitAll("a", "b")
	if d := sc.app.seen("a")[0]; d.uri != "/in/box" || d.method != "POST" {
		t.Errorf("%s %s, want POST /in/box", d.method, d.uri)
	}
	sc.settledAll(s, 0)
}

// TestUnixSocketThatIsNotThereYet is an app that is down, not a failed attempt.
func TestUnixSocketThatIsNotThereYet(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "app.sock")
	sc := newScene(t).with("APP_URL", "unix://"+path+":/", "MAX_RETRIES", "0").seed()
	sc.app.down()
	sc.send("a")
	s := start(t, sc.env)
	stays(t, 2*time.Second, "the message stays in the queue", func() bool { return sc.ready(sc.queue()) == 1 && !s.ended() })
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	sc.app.serve(l)
	sc.app.await("a", 1)
	sc.settledAll(s.awaitReady(), 0)
}

// TestAppHostThatDoesNotExist is an app that is down, too.
func TestAppHostThatDoesNotExist(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_URL", "http://no-such-host.invalid/", "MAX_RETRIES", "0").seed()
	sc.send("a")
	s := start(t, sc.env)
	stays(t, 3*time.Second, "the message stays in the queue", func() bool { return sc.ready(sc.queue()) == 1 && !s.ended() })
	s.stop()
}

// TestAppBehindTLS with a certificate of the system's store.
func TestAppBehindTLS(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1").seed()
	l := listen(t, "127.0.0.1:0")
	cert, _ := apptest.Certificate(t)
	sc.app.down()
	sc.app.serve(tls.NewListener(l, cert))
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificates[0].Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	sc.with("APP_URL", "https://"+l.Addr().String()+"/in")
	sc.env["SSL_CERT_FILE"] = ca
	sc.app.on("bad", status(500))
	ids := numbered("m", 30)
	sc.send(append(ids, "bad")...)
	s := sc.run()
	sc.app.awaitAll(ids...)
	if d := sc.take(sc.dlq(), 1)[0]; d.MessageId != "bad" || len(sc.app.seen("bad")) != 2 {
		t.Errorf("parked %q after %d attempts", d.MessageId, len(sc.app.seen("bad")))
	}
	sc.settledAll(s, 0)
}

// TestConnectionsAreReused: no more connections than messages in flight.
func TestConnectionsAreReused(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "4").seed()
	ids := numbered("m", 300)
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, body: strings.Repeat("answer ", 500)} })
	sc.send(ids...)
	sc.run()
	sc.app.awaitAll(ids...)
	conns := map[string]bool{}
	for _, id := range ids {
		conns[sc.app.seen(id)[0].remote] = true
	}
	if len(conns) > 4 {
		t.Errorf("%d connections for 300 messages with SIDECAR_CONCURRENCY=4", len(conns))
	}
}

func TestAppToken(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("APP_TOKEN", "canary-app-token").seed()
	m := message("a")
	m.Headers = amqp.Table{"Authorization": "Bearer forged", "authorization": "Basic forged"}
	sc.sendMessage(m)
	s := sc.run()
	if got := sc.app.await("a", 1)[0].header.Values("Authorization"); !slices.Equal(got, []string{"Bearer canary-app-token"}) {
		t.Errorf("Authorization %q", got)
	}
	if strings.Contains(s.log.String(), "canary-app-token") {
		t.Error("the log holds the app's token")
	}
}

var traceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// TestTraceContextWithoutTracing: a valid one passes unchanged, anything else is replaced.
func TestTraceContextWithoutTracing(t *testing.T) {
	t.Parallel()
	const valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	sc := newScene(t).seed()
	headers := map[string]amqp.Table{
		"valid":     {"traceparent": valid, "tracestate": "a=1,b=2", "baggage": "k=v"},
		"alone":     {"traceparent": valid},
		"none":      nil,
		"short":     {"traceparent": "00-4bf9-00f0-01"},
		"zero":      {"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
		"crlf":      {"traceparent": valid + "\r\nX-Injected: 1"},
		"number":    {"traceparent": int64(7)},
		"longstate": {"traceparent": valid, "tracestate": strings.Repeat("a=1,", 3000)},
		"badbag":    {"traceparent": valid, "baggage": "k=v\r\nX-Injected: 1"},
	}
	for id, h := range headers {
		m := message(id)
		m.Headers = h
		sc.sendMessage(m)
	}
	sc.run()
	for id := range headers {
		h := sc.app.await(id, 1)[0].header
		got := h.Get("Traceparent")
		if len(h.Values("Traceparent")) != 1 || !traceparent.MatchString(got) {
			t.Errorf("%s: traceparent %q, want one valid value", id, h.Values("Traceparent"))
		}
		keep := slices.Contains([]string{"valid", "alone", "longstate", "badbag"}, id)
		if (got == valid) != keep {
			t.Errorf("%s: traceparent %q, kept %v, want kept %v", id, got, got == valid, keep)
		}
		if len(h.Values("X-Injected")) > 0 {
			t.Errorf("%s: a header was injected", id)
		}
	}
	h := sc.app.seen("valid")[0].header
	if h.Get("Tracestate") != "a=1,b=2" || h.Get("Baggage") != "k=v" {
		t.Errorf("tracestate %q, baggage %q were changed", h.Get("Tracestate"), h.Get("Baggage"))
	}
}
