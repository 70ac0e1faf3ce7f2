package test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"sidecar/internal/brokertest"
)

// publishing is a scene whose sidecar has the publish endpoint.
func publishing(t testing.TB) *scene {
	t.Helper()
	return newScene(t).with("PUBLISH_ADDR", "127.0.0.1:0", "MAX_RETRIES", "0").seed()
}

// send POSTs a message to the publish endpoint; status 0 when nothing answered.
func (s *sidecar) send(path, body string, headers map[string]string) (status int, header http.Header, answer string) {
	s.t.Helper()
	return s.do(http.MethodPost, s.endpoint, path, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		r.URL = &url.URL{Scheme: "http", Host: s.endpoint, Opaque: path}
		for k, v := range headers {
			r.Header.Set(k, v)
		}
	})
}

// published fails the test unless the broker has the message.
func (s *sidecar) published(path, body string, headers map[string]string) {
	s.t.Helper()
	if status, _, answer := s.send(path, body, headers); status != http.StatusNoContent {
		s.t.Errorf("%s: %d %s", path, status, answer)
	}
}

// refused fails the test unless the message is refused with that status and code.
func (s *sidecar) refused(path, body string, headers map[string]string, status int, code string) {
	s.t.Helper()
	got, header, answer := s.send(path, body, headers)
	var p struct{ Code, Detail string }
	if got != status || json.Unmarshal([]byte(answer), &p) != nil || p.Code != code || header.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("%s: %d %v %s, want %d %s", path, got, header, answer, status, code)
	}
	if (header.Get("Retry-After") != "") != (status == http.StatusServiceUnavailable) {
		s.t.Errorf("%s: Retry-After %q with %d", path, header.Get("Retry-After"), got)
	}
}

// TestPublishRoundTrip: what the app publishes through the sidecar returns to it as it was, and an app that hands on
// what it has received publishes the same message.
func TestPublishRoundTrip(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	s := sc.run()
	headers := map[string]string{
		"Content-Type": "application/json", "Content-Encoding": "gzip", "Amqp-Message-Id": "first", "Amqp-Correlation-Id": "c%0D%0A%25", "Amqp-Reply-To": "%C3%BC",
		"Amqp-Type": "order.created", "Amqp-App-Id": "shop", "Amqp-Priority": "9", "Amqp-Expiration": "600000", "Amqp-Timestamp": "2026-07-01T12:00:00Z",
		"Amqp-Header-Tenant-Id": "%20a,b; c%20", "Amqp-Header-Empty": "", "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate": "a=1", "Baggage": "b=2",
	}
	s.published("/publish/default/orders/new%20%3F", "\x00{}\xff", headers)
	got := sc.app.await("first", 1)[0]
	check := func(d *delivery, id string) {
		t.Helper()
		for name, want := range headers {
			if name == "Amqp-Message-Id" {
				want = id
			}
			if v := d.header.Values(name); len(v) != 1 || v[0] != want {
				t.Errorf("%s: %s is %q, want %q", id, name, v, want)
			}
		}
		if string(d.body) != "\x00{}\xff" || d.header.Get("Amqp-Routing-Key") != "orders/new ?" || d.header.Get("Amqp-Exchange") != sc.exchange() {
			t.Errorf("%s: %q %v", id, d.body, d.header)
		}
	}
	check(got, "first")
	again := map[string]string{}
	for name := range got.header {
		again[name] = got.header.Get(name)
	}
	again["Amqp-Message-Id"] = ""
	again["Idempotency-Key"] = "second"
	s.published("/publish/default/orders/new%20%3F", string(got.body), again)
	check(sc.app.await("second", 1)[0], "second")
	if n := s.metric("sidecar_publish_requests_total", `exchange="default"`, `result="published"`); n != 2 {
		t.Errorf("counted %v", n)
	}
	sc.settledAll(s, 0)
}

// TestPublishAnswers takes every refusal that needs no fault of the broker.
func TestPublishAnswers(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	missing, full := sc.prefix+".missing", sc.prefix+".full"
	if err := sc.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}); err != nil {
		t.Fatal(err)
	}
	sc.with("PUBLISH_EXCHANGES", "missing="+missing+",queues=amq.default", "PUBLISH_ROUTING_KEYS", "orders.*,"+sc.prefix+"*", "PUBLISH_MAX_BODY", "64KiB")
	s := sc.run()
	s.refused("/publish/other/orders.a", "x", nil, 403, "forbidden")
	s.refused("/publish/default/invoices.a", "x", nil, 403, "forbidden")
	s.refused("/publish/missing/orders.a", "x", nil, 404, "unroutable")
	s.refused("/publish/queues/"+sc.prefix+".nowhere", "x", nil, 404, "unroutable")
	s.refused("/nowhere", "x", nil, 404, "not_found")
	s.refused("/publish/default/orders.a", strings.Repeat("x", 64<<10+1), nil, 413, "too_large")
	s.refused("/publish/default/orders.a", "x", map[string]string{"Amqp-Priority": "x"}, 400, "invalid")
	s.refused("/publish/default/orders.a", "x", map[string]string{"Amqp-Header-Large": strings.Repeat("x", 140_000)}, 400, "invalid")
	s.refused("/publish/default/orders.a", "x", map[string]string{"Origin": "http://evil.example"}, 403, "forbidden")
	s.published("/publish/queues/"+full, "x", nil)
	s.refused("/publish/queues/"+full, "x", nil, 503, "nacked")
	s.published("/publish/default/orders.a", strings.Repeat("x", 64<<10), map[string]string{"Idempotency-Key": "whole"})
	sc.app.await("whole", 1)
	if status, _, _ := s.do(http.MethodGet, s.endpoint, "/readyz", nil); status != http.StatusOK {
		t.Errorf("/readyz: %d", status)
	}
	if _, body := s.get(s.admin, "/readyz"); !strings.Contains(body, `"publish_endpoint","ok":true`) {
		t.Errorf("%s", body)
	}
	sc.settledAll(s, 0)
}

// TestPublishMayNot: a broker that does not let the sidecar publish there is a 403, and hurts no other exchange.
func TestPublishMayNot(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	secret := sc.prefix + ".secret"
	if err := sc.declareExchange(secret, "fanout"); err != nil {
		t.Fatal(err)
	}
	user := newAccount(t)
	user.may(".*", sc.prefix+`\.(main-exchange|dlq|retry|queue).*|amq\.default`, ".*")
	sc.with("PUBLISH_EXCHANGES", "secret="+secret, "AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
	s := sc.run()
	for range 3 {
		s.refused("/publish/secret/k", "x", nil, 403, "forbidden")
		s.published("/publish/default/k", "x", nil)
	}
	sc.settledAll(s, 0)
}

// TestPublishToken: a token that is set is asked for, on loopback too.
func TestPublishToken(t *testing.T) {
	t.Parallel()
	sc := publishing(t).with("PUBLISH_TOKEN", "canary-publish-token")
	s := sc.run()
	s.refused("/publish/default/k", "x", nil, 401, "unauthorized")
	s.refused("/publish/default/k", "x", map[string]string{"Authorization": "Bearer canary-publish-tokeN"}, 401, "unauthorized")
	s.published("/publish/default/k", "x", map[string]string{"Authorization": "Bearer canary-publish-token"})
	sc.settledAll(s, 0)
	if s.log.mentions("canary-publish-token") {
		t.Error("the log shows the token")
	}
}

// TestPublishUnknown: the link goes between message and confirm. The answer says so, and the same message again is one
// that consumers can recognise by its id.
func TestPublishUnknown(t *testing.T) {
	t.Parallel()
	sc := publishing(t).with("PUBLISH_TIMEOUT", "5s")
	p := linked(t, sc)
	s := sc.run()
	s.published("/publish/default/k", "x", nil)
	thaw := p.mute()
	status, _, answer := s.send("/publish/default/k", "x", map[string]string{"Idempotency-Key": "twice"})
	if status != http.StatusGatewayTimeout || !strings.Contains(answer, "may have been published") || !strings.Contains(answer, `"code":"unknown"`) {
		t.Errorf("%d %s", status, answer)
	}
	p.cut()
	thaw()
	eventually(t, "published again", func() bool {
		status, _, _ := s.send("/publish/default/k", "x", map[string]string{"Idempotency-Key": "twice"})
		return status == http.StatusNoContent
	})
	sc.app.await("twice", 2)
	s.stop()
}

// TestPublishInAnAlarm: 500 requests at once are all answered with 503, and none of them is published later.
func TestPublishInAnAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := publishing(t)
	s := sc.run()
	s.published("/publish/default/k", "x", map[string]string{"Idempotency-Key": "before"})
	sc.app.await("before", 1)
	calm := node.Alarm()
	eventually(t, "the alarm is an answer", func() bool {
		status, _, answer := s.send("/publish/default/k", "x", map[string]string{"Idempotency-Key": "first"})
		return status == http.StatusServiceUnavailable && strings.Contains(answer, `"code":"blocked"`)
	})
	var all sync.WaitGroup
	for range 500 {
		all.Go(func() {
			s.refused("/publish/default/k", "x", map[string]string{"Idempotency-Key": "refused"}, 503, "blocked")
		})
	}
	all.Wait()
	if status, _, body := s.do(http.MethodGet, s.endpoint, "/readyz", nil); status != http.StatusServiceUnavailable || !strings.Contains(body, "blocked") {
		t.Errorf("/readyz: %d %s", status, body)
	}
	calm()
	eventually(t, "the alarm is over", func() bool {
		status, _, _ := s.send("/publish/default/k", "x", map[string]string{"Idempotency-Key": "after"})
		return status == http.StatusNoContent
	})
	sc.app.await("after", 1)
	if n := len(sc.app.seen("refused")); n != 0 {
		t.Errorf("%d messages that were refused have been published", n)
	}
	sc.settledAll(s, 0)
}

// TestPublishTrace: the app's trace goes on in the message, under a PRODUCER span of the sidecar's.
func TestPublishTrace(t *testing.T) {
	t.Parallel()
	sink, collector := newSpanSink(t)
	sc := publishing(t)
	sc.env["OTEL_EXPORTER_OTLP_ENDPOINT"], sc.env["OTEL_BSP_SCHEDULE_DELAY"] = collector, "100"
	s := sc.run()
	s.published("/publish/default/k", "canary-body", map[string]string{"Idempotency-Key": "traced", "Traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "Tracestate": "a=1", "Baggage": "b=2"})
	got := sc.app.await("traced", 1)[0]
	if got.header.Get("Tracestate") != "a=1" || got.header.Get("Baggage") != "b=2" || !strings.Contains(got.header.Get("Traceparent"), "-4bf92f3577b34da6a3ce929d0e0e4736-") {
		t.Errorf("%v", got.header)
	}
	s.refused("/publish/other/k", "x", nil, 403, "forbidden")
	sc.settledAll(s, 0)
	send := sink.find(func(s *trace.Span) bool { return s.GetName() == "send "+sc.exchange() })
	process := sink.find(func(s *trace.Span) bool { return s.GetName() == "process "+sc.queue() })
	if len(send) != 1 || len(process) != 1 {
		t.Fatalf("%d send spans, %d process spans", len(send), len(process))
	}
	if send[0].GetKind() != trace.Span_SPAN_KIND_PRODUCER || hex.EncodeToString(send[0].GetTraceId()) != "4bf92f3577b34da6a3ce929d0e0e4736" ||
		hex.EncodeToString(send[0].GetParentSpanId()) != "00f067aa0ba902b7" || !bytes.Equal(process[0].GetParentSpanId(), send[0].GetSpanId()) {
		t.Errorf("%v, then %v", send[0], process[0])
	}
	if _, bodies := sink.seen(); strings.Contains(bodies, "canary-body") {
		t.Error("a body went into the trace")
	}
}

// TestPublishWhileDraining: an app that finishes its messages may publish while it does.
func TestPublishWhileDraining(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	gate := make(chan struct{})
	sc.app.on("held", answer{status: 200, gate: gate})
	s := sc.run()
	s.published("/publish/default/k", "x", map[string]string{"Idempotency-Key": "held"})
	sc.app.await("held", 1)
	s.signal(syscall.SIGTERM)
	eventually(t, "it drains", func() bool { return s.log.mentions(`"msg":"draining"`) })
	s.published("/publish/default/k", "x", map[string]string{"Idempotency-Key": "left"})
	close(gate)
	if code := s.exitCode(); code != 0 {
		t.Errorf("exit %d", code)
	}
	if d := sc.take(sc.queue(), 1)[0]; d.MessageId != "left" {
		t.Errorf("%s", d.MessageId)
	}
	if status, _, _ := s.send("/publish/default/k", "x", nil); status != 0 {
		t.Errorf("still there: %d", status)
	}
}

// TestPublishListener: an address that is taken, and one that needs a token.
func TestPublishListener(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	addr := freeAddr(t)
	taken := listen(t, addr)
	defer func() { _ = taken.Close() }()
	if s := launch(t, sc.envWith("SIDECAR_PUBLISH_ADDR", addr)); s.exitCode() != 1 || !s.log.mentions("listen for publishing") {
		t.Errorf("%s", s.log.tail(5))
	}
	if s := launch(t, sc.envWith("SIDECAR_PUBLISH_ADDR", "0.0.0.0:0")); s.exitCode() != 64 || !s.log.mentions("SIDECAR_PUBLISH_TOKEN") {
		t.Errorf("%s", s.log.tail(5))
	}
}

// TestPublishLeastPrivilege: what `sidecar plan --format permissions` prints is enough for what the app may publish to.
func TestPublishLeastPrivilege(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	events := sc.prefix + ".events"
	if err := sc.declareExchange(events, "fanout"); err != nil {
		t.Fatal(err)
	}
	sc.bind(sc.queue(), "", events)
	user := newAccount(t)
	sc.with("PUBLISH_EXCHANGES", "events="+events+",queues=amq.default", "AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
	user.least(sc.env)
	s := sc.run()
	s.published("/publish/default/k", "x", nil)
	s.published("/publish/events/k", "x", nil)
	s.published("/publish/queues/"+sc.queue(), "x", nil)
	eventually(t, "the app has them all", func() bool { return sc.app.total() == 3 })
	sc.settledAll(s, 0)
}

// TestPublishBatch: a line for each item, also when others fail.
func TestPublishBatch(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	s := sc.run()
	body := `{"routing_key":"a","body":{"n":1},"message_id":"one"}` + "\n" + `{"exchange":"other","routing_key":"k"}` + "\n" + `{"routing_key":"b","body":"x","message_id":"two","headers":{"n":7}}` + "\n"
	status, header, answer := s.send("/publish:batch", body, map[string]string{"Content-Type": "application/jsonl"})
	lines := strings.Split(answer, "\n")
	if status != 200 || header.Get("Content-Type") != "application/jsonl" || len(lines) != 4 || lines[0] != `{"index":0,"status":204}` ||
		!strings.HasPrefix(lines[1], `{"index":1,"status":403,"code":"forbidden","detail":`) || lines[2] != `{"index":2,"status":204}` {
		t.Errorf("%d %v %s", status, header, answer)
	}
	if d := sc.app.await("one", 1)[0]; string(d.body) != `{"n":1}` || d.header.Get("Content-Type") != "application/json" {
		t.Errorf("%+v", d)
	}
	if d := sc.app.await("two", 1)[0]; d.header.Get("Amqp-Header-N") != "7" {
		t.Errorf("%+v", d)
	}
	sc.settledAll(s, 0)
}
