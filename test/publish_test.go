package test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
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

// TestPublishAnswers takes the refusals that a setting or the broker causes, as a user with no more rights than
// `sidecar plan --format permissions` prints for all exchanges but one.
func TestPublishAnswers(t *testing.T) {
	t.Parallel()
	sc := publishing(t)
	full, secret := sc.prefix+".full", sc.prefix+".secret"
	must.Do(t, sc.declare(full, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}))
	must.Do(t, sc.declareExchange(secret, "fanout"))
	user := newAccount(t)
	sc.with("PUBLISH_EXCHANGES", "queues=amq.default", "PUBLISH_ROUTING_KEYS", "orders.*,"+sc.prefix+"*", "MAX_BODY", "64KiB",
		"PUBLISH_TOKEN", "canary-publish-token", "AMQP_USERNAME", user.name, "AMQP_PASSWORD", "canary-password")
	user.least(sc.env)
	s := sc.with("PUBLISH_EXCHANGES", "queues=amq.default,secret="+secret).run()
	with := func(pairs ...string) map[string]string {
		headers := map[string]string{"Authorization": "Bearer canary-publish-token"}
		for i := 0; i < len(pairs); i += 2 {
			headers[pairs[i]] = pairs[i+1]
		}
		return headers
	}
	s.refused("/publish/default/orders.a", "x", nil, 401, "unauthorized")
	s.refused("/publish/default/orders.a", "x", with("Authorization", "Bearer canary-publish-tokeN"), 401, "unauthorized")
	s.refused("/publish/default/orders.a", "x", with("Origin", "http://evil.example"), 403, "forbidden")
	s.refused("/publish/default/invoices.a", "x", with(), 403, "forbidden")
	s.refused("/publish/secret/orders.a", "x", with(), 403, "forbidden")
	s.refused("/publish/queues/"+sc.prefix+".nowhere", "x", with(), 404, "unroutable")
	s.refused("/publish/default/orders.a", strings.Repeat("x", 64<<10+1), with(), 413, "too_large")
	s.published("/publish/queues/"+full, "x", with())
	s.refused("/publish/queues/"+full, "x", with(), 503, "nacked")
	s.published("/publish/default/orders.a", strings.Repeat("x", 64<<10), with("Idempotency-Key", "whole"))
	sc.app.await("whole", 1)
	body := `{"routing_key":"orders.a","body":{"n":1},"message_id":"item"}` + "\n" + `{"exchange":"other","routing_key":"k"}` + "\n"
	status, _, answer := s.send("/publish:batch", body, with("Content-Type", "application/jsonl"))
	if status != 200 || !strings.HasPrefix(answer, `{"index":0,"status":204}`+"\n"+`{"index":1,"status":403,"code":"forbidden","detail":`) {
		t.Errorf("%d %s", status, answer)
	}
	checkHeaders(t, "item", sc.app.await("item", 1)[0], map[string]string{"Content-Type": "application/json"})
	if _, body := s.get(s.admin, "/readyz"); !strings.Contains(body, `"publish_endpoint","ok":true`) {
		t.Errorf("%s", body)
	}
	if s.log.mentions("canary-publish-token") {
		t.Error("the log shows the token")
	}
	sc.settledAll(s, 0)
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

// TestSendOnly: a sidecar that is not to consume publishes what the app POSTs and what it commits, and nothing else: it
// declares nothing, never speaks to the app, and shows no metrics that would look like a consumer that has stopped.
func TestSendOnly(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(outboxTable)
	sc := newScene(t).with("CONSUME", "off", "PUBLISH_ADDR", "127.0.0.1:0", "OUTBOX_DSN", db.DSN, "OUTBOX_POLL_INTERVAL", "100ms")
	other := sc.prefix + ".elsewhere"
	must.Do(t, sc.declareExchange(sc.exchange(), "fanout"))
	must.Do(t, sc.declare(other, nil))
	sc.bind(other, "", sc.exchange())
	s := sc.run()

	s.published("/publish/default/a", "posted", nil)
	db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('b', 'committed')`)
	eventually(t, "both messages are there", func() bool { return sc.ready(other) == 2 })
	if _, body := s.get(s.control, "/status"); !strings.Contains(body, `"pauses":[]`) || !strings.Contains(body, `"state":"publishing"`) || !strings.Contains(body, `"publish":{"connected":true}`) {
		t.Errorf("status %s", body)
	}
	_, body := s.get(s.control, "/status")
	var shown map[string]any
	must.Do(t, json.Unmarshal([]byte(body), &shown))
	for _, field := range []string{"app", "queue", "topology", "concurrency", "max_retries", "inflight"} {
		if value, ok := shown[field]; ok {
			t.Errorf("status has %s: %v", field, value)
		}
	}
	for _, e := range s.log.find(func(e entry) bool { return e.text("msg") == "started" }) {
		if e.text("queue")+e.text("topology")+e.text("url") != "" {
			t.Errorf("%v", e)
		}
	}
	if status, body := s.get(s.admin, "/readyz/broker"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.get(s.control, "/dlq/messages"); status != http.StatusNotFound {
		t.Errorf("dead letters: %d %s", status, body)
	}
	if _, text := s.get(s.admin, "/metrics"); strings.Contains(text, "sidecar_consumer_active") || strings.Contains(text, "sidecar_app_up") ||
		!strings.Contains(text, "sidecar_amqp_connected 1") {
		t.Errorf("metrics:\n%s", text)
	}
	if n := sc.app.Accepted(); n != 0 {
		t.Errorf("%d connections to the app", n)
	}
	for _, queue := range []string{sc.queue(), sc.retryQueue(), sc.dlq()} {
		if sc.ready(queue) != -1 {
			t.Errorf("queue %s was declared", queue)
		}
	}
	s.stop()

	for args, want := range map[string]struct {
		code int
		says string
	}{
		"check":                     {0, "nothing is consumed"},
		"plan":                      {0, "SIDECAR_CONSUME=off: nothing is declared and nothing is consumed; what the app sends is published to\n  exchange " + sc.exchange() + "\n"},
		"plan --format permissions": {0, "main-exchange"},
		"plan --format mermaid":     {1, "declares nothing"},
		"check --roundtrip":         {1, "SIDECAR_CONSUME=off, so no message can be delivered"},
	} {
		r := command(t, sc.env, strings.Fields(args)...)
		if (r.code == 0) != (want.code == 0) || !strings.Contains(r.all(), want.says) || strings.Contains(r.stdout, sc.queue()) {
			t.Errorf("%s: exit %d:\n%s", args, r.code, r.all())
		}
	}
}

// TestPublishAfterADrain: a drain that was asked for comes before the end of the app, which may publish until then. A
// stop ends that.
func TestPublishAfterADrain(t *testing.T) {
	t.Parallel()
	db := postgrestest.New(t)
	db.Exec(outboxTable)
	sc := publishing(t).with("OUTBOX_DSN", db.DSN, "OUTBOX_POLL_INTERVAL", "100ms")
	s := sc.run()
	if r := command(t, sc.running(s), "drain"); r.code != 0 {
		t.Fatalf("drain: exit %d:\n%s", r.code, r.all())
	}
	s.published("/publish/default/a", "after the drain", nil)
	db.Exec(`INSERT INTO outbox (routing_key, body) VALUES ('b', 'after it, too')`)
	eventually(t, "both wait in the queue", func() bool { return sc.ready(sc.queue()) == 2 })
	s.stop()
	if status, _, _ := s.send("/publish/default/a", "after the stop", nil); status != 0 {
		t.Errorf("%d after the stop", status)
	}
}

// TestSendOnlyIsReadyWithTheBroker: nothing can be published without a broker.
func TestSendOnlyIsReadyWithTheBroker(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONSUME", "off", "PUBLISH_ADDR", "127.0.0.1:0", "AMQP_URL", "amqp://127.0.0.1:1/")
	s := start(t, sc.env)
	if status, body := s.get(s.admin, "/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, `{"name":"broker","ok":false}`) {
		t.Errorf("%d %s", status, body)
	}
	if status, body := s.get(s.admin, "/livez"); status != http.StatusOK {
		t.Errorf("%d %s", status, body)
	}
	s.stop()
}
