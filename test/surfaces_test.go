package test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestMetrics: counts are right, and no label comes from a message.
func TestMetrics(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "250ms").seed()
	sc.app.on("bad", status(500))
	sc.app.on("early", status(425), status(200))
	m := message("canary-id")
	m.Type, m.AppId, m.Headers = "canary-type", "canary-app", amqp.Table{"canary-header": "canary-value"}
	sc.publish(sc.exchange(), "canary.key", m)
	sc.send("bad", "early", "good")
	s := sc.run()
	eventually(t, "everything settled", func() bool {
		return sc.ready(sc.dlq()) == 1 && slices.Contains(s.log.outcomes("early"), "ack") && slices.Contains(s.log.outcomes("good"), "ack") && slices.Contains(s.log.outcomes("canary-id"), "ack")
	})
	eventually(t, "the depth of the DLQ", func() bool { return s.metric("sidecar_queue_messages_ready", `kind="dlq"`) == 1 })
	_, text := s.get(s.admin, "/metrics")
	if strings.Contains(text, "canary") {
		t.Error("a label holds something from a message")
	}
	queue := `queue="` + sc.queue() + `"`
	for _, name := range []string{
		"sidecar_inflight_messages", "sidecar_delayed_messages", "sidecar_concurrency_limit", "sidecar_app_up", "sidecar_stale_deliveries_total",
		"sidecar_headers_truncated_total", "sidecar_inflight_requests",
	} {
		if !strings.Contains(text, "\n"+name+"{"+queue+"} ") {
			t.Errorf("%s does not name its queue", name)
		}
	}
	for _, c := range []struct {
		want   float64
		name   string
		labels []string
	}{
		{3, "sidecar_messages_settled_total", []string{queue, `outcome="ack"`}}, {1, "sidecar_messages_settled_total", []string{queue, `outcome="retry"`}},
		{1, "sidecar_messages_settled_total", []string{queue, `outcome="park"`, `reason="max_retries"`}},
		{1, "sidecar_messages_settled_total", []string{queue, `outcome="requeue"`}}, {6, "sidecar_messages_received_total", []string{queue}},
		{1, "sidecar_messages_received_total", []string{queue, `redelivered="true"`}}, {6, "sidecar_http_requests_total", []string{queue}},
		{2, "sidecar_http_requests_total", []string{queue, `code="500"`}}, {6, "sidecar_http_request_duration_seconds_count", []string{queue}},
		{0, "sidecar_inflight_messages", nil}, {0, "sidecar_inflight_requests", nil}, {0, "sidecar_delayed_messages", nil}, {1, "sidecar_consumer_active", []string{queue}}, {1, "sidecar_app_up", nil},
		{1, "sidecar_amqp_connected", nil}, {0, "sidecar_amqp_blocked", nil}, {0, "sidecar_paused", nil}, {0, "sidecar_park_failures_total", nil},
		{0, "sidecar_stale_deliveries_total", nil}, {1, "sidecar_publish_confirm_duration_seconds_count", []string{`kind="park"`}}, {1, "sidecar_build_info", nil},
		{0, "sidecar_queue_messages_ready", []string{`kind="main"`}}, {0, "sidecar_queue_messages_ready", []string{`kind="retry"`}},
		{1, "sidecar_max_retries", []string{queue}},
	} {
		if got := s.metric(c.name, c.labels...); got != c.want {
			t.Errorf("%s%v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
}

// TestHealthSurfaces: what each listener serves and does not serve. At the level info a success has no line.
func TestHealthSurfaces(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("LOG_LEVEL", "info")
	s := sc.run()
	sc.send("canary-message")
	eventually(t, "the ack", func() bool { return s.metric("sidecar_messages_settled_total", `outcome="ack"`) == 1 })
	for _, path := range []string{"/livez", "/readyz", "/readyz/broker", "/startupz", "/metrics"} {
		if code, body := s.get(s.admin, path); code != 200 || body == "" {
			t.Errorf("GET %s: %d %q", path, code, body)
		}
	}
	if _, body := s.get(s.admin, "/readyz"); !json.Valid([]byte(body)) {
		t.Errorf("GET /readyz is not JSON: %s", body)
	}
	// The admin listener is read-only and shows no payloads.
	for _, path := range []string{"/pause", "/resume", "/drain", "/dlq/redrive", "/status", "/dlq", "/dlq/messages", "/debug/pprof/", "/debug/vars"} {
		if code, body := s.post(s.admin, path); code/100 == 2 {
			t.Errorf("POST %s on the admin listener: %d %s", path, code, body)
		}
		if code, body := s.get(s.admin, path); code/100 == 2 {
			t.Errorf("GET %s on the admin listener: %d %s", path, code, body)
		}
	}
	if !s.ready() || sc.consumers(sc.queue()) != 1 {
		t.Error("the admin listener changed something")
	}
	if code, body := s.get(s.control, "/status"); code != 200 || !json.Valid([]byte(body)) {
		t.Errorf("GET /status: %d %s", code, body)
	}
	s.stop()
	for l := range strings.Lines(s.log.String()) {
		if !json.Valid([]byte(l)) || strings.Contains(l, "canary-message") {
			t.Errorf("not a JSON line, or about a success: %q", l)
		}
	}
}
