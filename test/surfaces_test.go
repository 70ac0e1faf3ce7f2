package test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestMetrics: counts are right, and no label comes from a message.
func TestMetrics(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1", "REQUEUE_DELAY_MAX", "250ms").seed()
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

// plain follows nothing and keeps no connection, so that a stopping sidecar never waits for a test's idle connection.
var plain = &http.Client{
	Timeout:       30 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// get returns status and body; status 0 when nothing answered.
func (s *sidecar) get(addr, path string) (int, string) {
	return s.request(http.MethodGet, addr, path, nil)
}

func (s *sidecar) post(addr, path string) (int, string) {
	return s.request(http.MethodPost, addr, path, nil)
}

func (s *sidecar) request(method, addr, path string, edit func(*http.Request)) (int, string) {
	s.t.Helper()
	status, _, body := s.do(method, addr, path, edit)
	return status, body
}

func (s *sidecar) do(method, addr, path string, edit func(*http.Request)) (int, http.Header, string) {
	s.t.Helper()
	req := must.Get(http.NewRequestWithContext(context.Background(), method, "http://"+addr+path, nil))(s.t)
	if edit != nil {
		edit(req)
	}
	res, err := plain.Do(req)
	if err != nil {
		return 0, nil, err.Error()
	}
	defer func() { _ = res.Body.Close() }()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, res.Header, string(b)
}

// metric adds up the samples of a metric whose labels hold all of the given `name="value"` pairs.
func (s *sidecar) metric(name string, labels ...string) float64 {
	s.t.Helper()
	_, text := s.get(s.admin, "/metrics")
	sum := 0.0
	for line := range strings.Lines(text) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		metric, rest, _ := strings.Cut(series, "{")
		if !ok || metric != name || slices.ContainsFunc(labels, func(l string) bool { return !strings.Contains(rest, l) }) {
			continue
		}
		if v, err := strconv.ParseFloat(value, 64); err == nil {
			sum += v
		}
	}
	return sum
}

// result is what a subcommand that ends left behind.
type result struct {
	stdout, stderr string
	code           int
}

func (r result) all() string { return r.stdout + r.stderr }

// command runs `sidecar args…` to its end.
func command(t testing.TB, env map[string]string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = environ(env), &stdout, &stderr, dieWithTest()
	_ = cmd.Run()
	r := result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
	if ctx.Err() != nil {
		t.Fatalf("sidecar %v did not end within %v:\n%s", args, patience, r.all())
	}
	if strings.Contains(r.all(), "panic:") {
		t.Errorf("sidecar %v panicked:\n%s", args, r.all())
	}
	return r
}
