package test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestExplain: what a message and an answer come to, with the configuration that the sidecar would have.
func TestExplain(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_ROUTES"], env["SIDECAR_APP_URL"] = "order.#=/orders/{routing_key}, type:refund.*=/refunds", "unix:///run/app.sock:/in?key=s3cr3t"
	env["SIDECAR_ROUTES_ELSE"], env["SIDECAR_PARK_ON_STATUS"], env["SIDECAR_RESPONSE_DIALECT"] = "park", "422", "dapr"
	order := []string{"--routing-key", "order.created"}
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--status", "503", "--retry", "10"}, []string{": park", "max_retries"}},
		{[]string{"--status", "503", "--retry", "9"}, []string{": retry"}},
		{[]string{"--status", "425"}, []string{": requeue"}},
		{[]string{"--status", "422"}, []string{": park", "park_status"}},
		{nil, []string{"status 200", "POST to unix:///run/app.sock:/orders/order.created, by the route order.#=/orders/{routing_key}"}},
		{[]string{"--body", `{"status":"DROP"}`}, []string{": park", "disposition", "dapr: DROP"}},
		{[]string{"--body", strings.Repeat(" ", 70000)}, []string{": retry", "malformed", "over 64 KiB"}},
		{[]string{"--routing-key", "x", "--type", "refund.v2", "--status", "500"}, []string{": retry", "/refunds, by the route type:refund.*=/refunds"}},
		{[]string{"--routing-key", "x"}, []string{"no_route", ": park", "not POSTed"}},
	} {
		r := command(t, env, slices.Concat([]string{"explain"}, order, c.args)...)
		for _, word := range c.words {
			if r.code != 0 || !strings.Contains(r.stdout, word) || strings.Contains(r.all(), "s3cr3t") {
				t.Errorf("explain %.80q: exit %d, no %q in %q", c.args, r.code, word, r.all())
			}
		}
	}
	for args, say := range map[string]string{"--status 200 --body {}": "SIDECAR_RESPONSE_DIALECT", "--status x": "--status"} {
		if r := command(t, valid(), append([]string{"explain"}, strings.Fields(args)...)...); r.code != 64 || !strings.Contains(r.stderr, say) {
			t.Errorf("explain %s: exit %d, %s", args, r.code, r.all())
		}
	}
}

// TestDefinitionsCanBeImported and then fit what run declares.
func TestDefinitionsCanBeImported(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	importDefinitions(t, command(t, sc.env, "plan", "--format", "definitions").stdout)
	if sc.ready(sc.queue()) != 0 || sc.ready(sc.dlq()) != 0 || sc.ready(sc.retryQueue()) != 0 {
		t.Fatal("the imported queues are not there")
	}
	s := sc.with("TOPOLOGY_MODE", "verify", "MAX_RETRIES", "1").run()
	sc.app.on("bad", status(500))
	sc.send("bad")
	sc.take(sc.dlq(), 1)
	sc.settledAll(s, 0)
	for args, says := range map[string]string{"plan": sc.retryQueue(), "plan --format mermaid": "flowchart", "version": "go1."} {
		if r := command(t, sc.env, strings.Fields(args)...); r.code != 0 || !strings.Contains(r.stdout, says) {
			t.Errorf("%s: exit %d:\n%s", args, r.code, r.all())
		}
	}
}

// importDefinitions is what `rabbitmqctl import_definitions FILE` runs inside the node. The file itself may be out of
// the node's sight, and standard input is not read everywhere.
func importDefinitions(t testing.TB, json string) {
	t.Helper()
	brokertest.Eval(t, "ok = rabbit_definitions:import_raw(<<"+strconv.Quote(json)+">>)")
}

// TestCheck: 0 when it fits, 1 with the object and the fix when it does not, in text and JSON, and it changes nothing.
func TestCheck(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	finds := func(words ...string) {
		t.Helper()
		text, object := command(t, sc.env, "check"), command(t, sc.env, "check", "--json")
		var answer struct {
			Fits     bool
			Findings []struct{ Severity string }
		}
		if err := json.Unmarshal([]byte(object.stdout), &answer); err != nil || answer.Fits || len(answer.Findings) == 0 {
			t.Errorf("%v: %s", err, object.all())
		}
		for _, r := range []result{text, object} {
			if r.code != 1 || slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(r.all(), w) }) {
				t.Errorf("exit %d, want 1 and %q:\n%s", r.code, words, r.all())
			}
		}
	}
	finds(sc.queue(), sc.retryExchange(), sc.dlq())
	if sc.ready(sc.queue()) >= 0 || sc.ready(sc.dlq()) >= 0 {
		t.Error("check declared queues")
	}
	sc.seed().with("MANAGEMENT_URL", brokertest.Management(t))
	if r := command(t, sc.env, "check"); r.code != 0 {
		t.Errorf("exit %d with a topology that fits:\n%s", r.code, r.all())
	}
	r := command(t, sc.env, "check", "--json", "--roundtrip")
	if !strings.Contains(r.stdout, `"fits":true`) || !strings.Contains(r.stdout, `"bindings":"seen"`) || r.code != 0 {
		t.Errorf("exit %d: %s", r.code, r.all())
	}
	sc.deleteQueue(sc.retryQueue())
	must.Do(t, sc.declare(sc.retryQueue(), waitArgs(sc, 6000)))
	finds(sc.retryQueue(), "x-message-ttl", "6000", "300")
	must.Do(t, sc.declare(sc.retryQueue(), waitArgs(sc, 6000))) // it is as it was
	sc.with("AMQP_URL", "amqp://u:canary-secret@"+freeAddr(t)+"/")
	if r := command(t, sc.env, "check"); r.code != 1 || strings.Contains(r.all(), "canary-secret") {
		t.Errorf("exit %d without a broker, want 1:\n%s", r.code, r.all())
	}
}
