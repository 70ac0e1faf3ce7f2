package test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/postgrestest"
	"sidecar/internal/testkit/must"
)

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
