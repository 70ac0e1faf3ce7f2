package test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

func TestVersion(t *testing.T) {
	t.Parallel()
	r := command(t, nil, "version")
	if r.code != 0 || !strings.Contains(r.stdout, "go1.") {
		t.Errorf("exit %d: %s", r.code, r.all())
	}
}

func TestUnknownCommand(t *testing.T) {
	t.Parallel()
	if r := command(t, valid(), "xyz"); r.code == 0 || !strings.Contains(r.all(), "check") {
		t.Errorf("exit %d for an unknown command, and it should name the known ones:\n%s", r.code, r.all())
	}
	if r := command(t, nil, "--help"); !strings.Contains(r.all(), "SIDECAR_SERVICE") && !strings.Contains(r.all(), "plan") {
		t.Errorf("--help says:\n%s", r.all())
	}
}

// TestConfigIsMasked: every value with its origin, no secret.
func TestConfigIsMasked(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_AMQP_URL"] = "amqp://user:canary-url@h.example/"
	env["SIDECAR_AMQP_PASSWORD"] = "canary-password"
	env["SIDECAR_APP_TOKEN"] = "canary-app-token"
	env["SIDECAR_CONTROL_TOKEN"] = "canary-control-token"
	env["SIDECAR_RETRY_DELAY"] = "7s"
	r := command(t, env, "config")
	if r.code != 0 {
		t.Fatalf("exit %d: %s", r.code, r.all())
	}
	if strings.Contains(r.all(), "canary") {
		t.Errorf("a secret was printed:\n%s", r.all())
	}
	for _, want := range []string{"SIDECAR_SERVICE", "shop-orders", "SIDECAR_RETRY_DELAY", "7s", "SIDECAR_MAX_RETRIES", "10", "SIDECAR_AMQP_HEARTBEAT", "10s", "default", "***"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is not in:\n%s", want, r.stdout)
		}
	}
	env["SIDECAR_RETRY_DELAY"] = "7"
	if r := command(t, env, "config"); r.code != 64 {
		t.Errorf("exit %d with a bad value, want 64", r.code)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		word string
	}{
		{[]string{"--status", "503", "--retry", "10"}, "park"}, {[]string{"--status", "503", "--retry", "9"}, "retry"}, {[]string{"--status", "204"}, "ack"},
		{[]string{"--status", "425"}, "requeue"}, {[]string{"--status", "425", "--retry", "10"}, "park"}, {[]string{"--status", "404", "--retry", "0"}, "retry"},
		{[]string{"--status", "200", "--retry", "10"}, "ack"}, {[]string{"--status", "302"}, "retry"},
	} {
		r := command(t, valid(), append([]string{"explain"}, c.args...)...)
		if r.code != 0 || !strings.Contains(strings.ToLower(r.stdout), c.word) {
			t.Errorf("explain %v: exit %d, no %q in %q", c.args, r.code, c.word, r.all())
		}
	}
	routed := valid()
	routed["SIDECAR_ROUTES"], routed["SIDECAR_APP_URL"] = "order.#=/orders/{routing_key}, type:refund.*=/refunds", "unix:///run/app.sock:/in?key=s3cr3t"
	for _, c := range []struct {
		args      []string
		otherwise string
		words     []string
	}{
		{[]string{"--routing-key", "order.created"}, "app", []string{"status 200", "POST to unix:///run/app.sock:/orders/order.created, by the route order.#=/orders/{routing_key}"}},
		{[]string{"--routing-key", "x", "--type", "refund.v2", "--status", "500"}, "ack", []string{"status 500", ": retry", "POST to unix:///run/app.sock:/refunds, by the route type:refund.*=/refunds"}},
		{[]string{"--routing-key", "x"}, "app", []string{"POST to unix:///run/app.sock:/in, because no route matches"}},
		{[]string{"--type", "x"}, "ack", []string{"no_route", ": ack", "not POSTed"}},
		{[]string{"--routing-key", "x", "--status", "500"}, "park", []string{"no_route", ": park", "not POSTed"}},
	} {
		routed["SIDECAR_ROUTES_ELSE"] = c.otherwise
		r := command(t, routed, append([]string{"explain"}, c.args...)...)
		for _, word := range c.words {
			if r.code != 0 || !strings.Contains(r.stdout, word) || strings.Contains(r.all(), "s3cr3t") {
				t.Errorf("explain %v, otherwise %s: exit %d, no %q in %q", c.args, c.otherwise, r.code, word, r.all())
			}
		}
	}
	env := valid()
	env["SIDECAR_PARK_ON_STATUS"] = "422"
	if r := command(t, env, "explain", "--status", "422"); !strings.Contains(strings.ToLower(r.stdout), "park") {
		t.Errorf("explain of a status in SIDECAR_PARK_ON_STATUS: %s", r.all())
	}
	env["SIDECAR_RESPONSE_DIALECT"] = "dapr"
	for body, words := range map[string][]string{
		`{"status":"SUCCESS"}`: {"ack", "success"}, `{"status":"RETRY"}`: {"retry", "disposition", "dapr: RETRY"},
		`{"status":"DROP"}`: {"park", "disposition", "dapr: DROP"}, "": {"ack", "success"},
		`{"pad":"` + strings.Repeat("p", 70000) + `","status":"RETRY"}`: {": retry", "malformed", "too large for SIDECAR_RESPONSE_DIALECT=dapr: over 64 KiB"},
		strings.Repeat(" ", 70000):                                      {": retry", "malformed", "over 64 KiB"},
		`{"status":"RETRY"}` + strings.Repeat(" ", 70000):               {": retry", "disposition", "dapr: RETRY"},
		strings.Repeat("p", 70000):                                      {": ack", "success"},
	} {
		r := command(t, env, "explain", "--status", "200", "--body", body)
		for _, word := range words {
			if r.code != 0 || !strings.Contains(r.stdout, word) {
				t.Errorf("explain of the body %.60s: exit %d, no %q in %q", body, r.code, word, r.all())
			}
		}
	}
	if r := command(t, valid(), "explain", "--status", "200", "--body", "{}"); r.code != 64 || !strings.Contains(r.all(), "SIDECAR_RESPONSE_DIALECT") {
		t.Errorf("explain of a body that says nothing: exit %d, %s", r.code, r.all())
	}
	if r := command(t, valid(), "explain", "--status", "x"); r.code == 0 {
		t.Errorf("explain of nonsense exits 0: %s", r.all())
	}
}

// TestPlanOfEveryPreset needs no broker and names what the document names.
func TestPlanOfEveryPreset(t *testing.T) {
	t.Parallel()
	for preset, names := range map[string][]string{
		"fanout":       {"shop.main-exchange", "shop.queue.shop-orders", "shop.retry-exchange.shop-orders", "shop.retry-queue.shop-orders", "shop.dlq.shop-orders", "5000"},
		"topic-tiers":  {"shop.events", "shop.events.retry", "shop.events.dlx", "shop.events.dlq", "shop.orders", "shop.orders.retry.30s", "shop.orders.retry.5m", "shop.orders.retry.30m", "orders.retry", "orders.*", "1800000"},
		"per-queue":    {"domain.events", "q.shop-orders", "retry.q.shop-orders", "q.shop-orders.retry", "dlq.q.shop-orders", "q.shop-orders.dlq", "parking", "15000", "files.uploaded.*"},
		"delay-ladder": {"shop.events", "shop.orders", "shop.orders.delay_2s", "shop.orders.delay_5s", "shop.orders.delay_15s", "shop.orders.dlq", "quorum"},
		"native":       {"shop.main-exchange", "shop.queue.shop-orders", "shop.dlq.shop-orders", "failed", "5000", "200"},
		"dead-letter":  {"shop", "shop.dlx", "orders.q", "orders.q.retry", "orders.q.dlq", "5000"},
	} {
		env := valid()
		env["SIDECAR_TOPOLOGY"] = preset
		switch preset {
		case "per-queue":
			env["SIDECAR_BINDINGS"] = "domain.events:files.uploaded.*"
		case "delay-ladder":
			env["SIDECAR_BINDINGS"] = "shop.events:order.#"
		case "dead-letter":
			env["SIDECAR_QUEUE"], env["SIDECAR_BINDINGS"] = "orders.q", "shop:order.*"
		}
		defs := command(t, env, "plan", "--format", "definitions")
		if defs.code != 0 {
			t.Errorf("%s: exit %d: %s", preset, defs.code, defs.all())
			continue
		}
		var doc struct {
			Queues, Exchanges []struct{ Name string }
			Bindings          []map[string]any
		}
		if err := json.Unmarshal([]byte(defs.stdout), &doc); err != nil || len(doc.Queues) < 2 || len(doc.Bindings) == 0 {
			t.Errorf("%s: definitions: %v\n%s", preset, err, defs.stdout)
		}
		for _, n := range names {
			if !strings.Contains(defs.stdout, `"`+n+`"`) && !strings.Contains(defs.stdout, ": "+n) && !strings.Contains(defs.stdout, ":"+n) {
				t.Errorf("%s: %q is not in the definitions", preset, n)
			}
		}
		text, mermaid := command(t, env, "plan"), command(t, env, "plan", "--format", "mermaid")
		if text.code != 0 || mermaid.code != 0 || !strings.Contains(text.stdout, names[1]) || !strings.Contains(mermaid.stdout, "flowchart") {
			t.Errorf("%s: text exits %d, mermaid %d:\n%s", preset, text.code, mermaid.code, mermaid.stdout)
		}
	}
	if r := command(t, valid(), "plan", "--format", "yaml"); r.code == 0 {
		t.Error("an unknown format exits 0")
	}
}

// TestDefinitionsCanBeImported and then fit what run declares.
func TestDefinitionsCanBeImported(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		sc := newScene(t).with("QUEUE_TYPE", queueType)
		r := command(t, sc.env, "plan", "--format", "definitions")
		importDefinitions(t, r.stdout)
		if sc.ready(sc.queue()) != 0 || sc.ready(sc.dlq()) != 0 || sc.ready(sc.retryQueue()) != 0 {
			t.Fatal("the imported queues are not there")
		}
		sc.with("TOPOLOGY_MODE", "verify", "MAX_RETRIES", "1")
		s := sc.run()
		sc.app.on("bad", status(500))
		sc.send("bad")
		sc.take(sc.dlq(), 1)
		sc.settledAll(s, 0)
	}
}

// importDefinitions is what `rabbitmqctl import_definitions FILE` runs inside the node. The file itself may be out of
// the node's sight, and standard input is not read everywhere.
func importDefinitions(t testing.TB, json string) {
	t.Helper()
	brokertest.Eval(t, "ok = rabbit_definitions:import_raw(<<"+strconv.Quote(json)+">>)")
}

// TestCheck: 0 when it fits, 1 with the object and the fix when it does not, and it changes nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	r := command(t, sc.env, "check")
	if sc.ready(sc.queue()) >= 0 || sc.ready(sc.dlq()) >= 0 {
		t.Errorf("check declared queues:\n%s", r.all())
	}
	sc.seed()
	if r := command(t, sc.env, "check"); r.code != 0 {
		t.Errorf("exit %d with a topology that fits:\n%s", r.code, r.all())
	}
	sc.deleteQueue(sc.retryQueue())
	if err := sc.declare(sc.retryQueue(), waitArgs(sc, 6000)); err != nil {
		t.Fatal(err)
	}
	r = command(t, sc.env, "check")
	if r.code != 1 {
		t.Errorf("exit %d with a wrong TTL, want 1", r.code)
	}
	for _, want := range []string{sc.retryQueue(), "x-message-ttl", "6000", "300"} {
		if !strings.Contains(r.all(), want) {
			t.Errorf("%q is not in the finding:\n%s", want, r.all())
		}
	}
	if err := sc.declare(sc.retryQueue(), waitArgs(sc, 6000)); err != nil {
		t.Errorf("check changed the queue: %v", err)
	}
}

// TestCheckJSON: one object on standard output, also beside a round trip, and the same exit codes.
func TestCheckJSON(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.with("MANAGEMENT_URL", brokertest.Management(t))
	run := func(code int, args ...string) (answer map[string]any) {
		t.Helper()
		r := command(t, sc.env, append([]string{"check", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(r.stdout), &answer); err != nil || r.code != code {
			t.Errorf("exit %d, want %d; %v:\n%s", r.code, code, err, r.all())
		}
		return answer
	}
	if got := run(0, "--roundtrip"); got["queue"] != sc.queue() || got["fits"] != true || got["bindings"] != "seen" {
		t.Errorf("%v", got)
	}
	sc.deleteQueue(sc.dlq())
	got := run(1)
	findings, _ := got["findings"].([]any)
	if text := fmt.Sprint(findings...); got["fits"] != false || !strings.Contains(text, sc.dlq()) || !strings.Contains(text, "severity:problem") {
		t.Errorf("%v", got)
	}
}

// TestCheckFindsAMissingQueue finds what is missing, and a broken chain.
func TestCheckFindsAMissingQueue(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("TOPOLOGY_MODE", "verify").seed()
	sc.deleteQueue(sc.dlq())
	if r := command(t, sc.env, "check"); r.code != 1 || !strings.Contains(r.all(), sc.dlq()) {
		t.Errorf("exit %d without a DLQ:\n%s", r.code, r.all())
	}
	if err := sc.declare(sc.dlq(), nil); err != nil {
		t.Fatal(err)
	}
	sc.deleteExchange(sc.retryExchange())
	if r := command(t, sc.env, "check"); r.code != 1 || !strings.Contains(r.all(), sc.retryExchange()) {
		t.Errorf("exit %d without a retry exchange:\n%s", r.code, r.all())
	}
}

func TestCheckWithoutABroker(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("AMQP_URL", "amqp://u:canary-secret@"+freeAddr(t)+"/")
	r := command(t, sc.env, "check")
	if r.code != 1 || strings.Contains(r.all(), "canary-secret") {
		t.Errorf("exit %d without a broker, want 1:\n%s", r.code, r.all())
	}
}

func TestHealthCommand(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	for _, probe := range [][]string{{"health"}, {"health", "live"}, {"health", "ready"}, {"health", "startup"}} {
		if r := command(t, sc.running(s), probe...); r.code != 0 {
			t.Errorf("%v: exit %d: %s", probe, r.code, r.all())
		}
	}
	s.kill()
	if r := command(t, sc.running(s), "health", "live"); r.code != 1 {
		t.Errorf("health of a dead sidecar: exit %d, want 1", r.code)
	}
	if r := command(t, sc.running(s), "drain"); r.code != 1 {
		t.Errorf("drain of a dead sidecar: exit %d, want 1: %s", r.code, r.all())
	}
}

// TestAnotherRetryDelay: the retry queue exists with another delay. It stays as it is, and retries wait beside it.
func TestAnotherRetryDelay(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seedTTL(3_600_000)
	sc.app.on("m", status(500), status(200))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 2)
	if !s.log.mentions("topology differs", sc.retryQueue(), "3600000", sc.retryQueue()+".300ms") {
		t.Error("the log does not say where retries wait")
	}
	if err := sc.declare(sc.retryQueue(), waitArgs(sc, 3_600_000)); err != nil {
		t.Errorf("the sidecar changed the queue: %v", err)
	}
	sc.settledAll(s, 0)
}

// TestDrift: another service declared a retry queue that goes away when nothing uses it. The sidecar stays up, is not
// ready, says what and how to fix it, consumes nothing, deletes nothing, and goes on when it is fixed.
func TestDrift(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	vanishes := waitArgs(sc, 300)
	vanishes["x-expires"] = int32(3_600_000)
	must.Do(t, sc.declare(sc.retryQueue(), vanishes))
	s := start(t, sc.env).listen()
	eventually(t, "a log line with queue, argument, both values, and the way out", func() bool {
		return s.log.mentions(sc.retryQueue(), "x-expires", "3600000", "none", "SIDECAR_RETRY_QUEUE")
	})
	sc.send("m")
	stays(t, 2*time.Second, "up, not ready, consuming nothing", func() bool { return !s.ended() && !s.ready() && sc.app.total() == 0 })
	if status, body := s.get(s.admin, "/readyz"); status != 503 || !strings.Contains(body, "topology") {
		t.Errorf("GET /readyz: %d %s", status, body)
	}
	if err := sc.declare(sc.retryQueue(), vanishes); err != nil {
		t.Errorf("the sidecar changed the foreign queue: %v", err)
	}
	sc.deleteQueue(sc.retryQueue())
	brokertest.Eventually(t, 90*time.Second, "the message, once the queue is gone and may be declared right", func() bool { return len(sc.app.seen("m")) == 1 })
	sc.settledAll(s.awaitReady(), 0)
}
