package test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// valid is an environment that is right but leads nowhere: what is tested here ends before anything is dialed.
func valid() map[string]string {
	return map[string]string{
		"SIDECAR_SERVICE": "shop-orders", "SIDECAR_AMQP_URL": "amqp://guest:guest@127.0.0.1:1/", "SIDECAR_ADMIN_ADDR": "127.0.0.1:0", "SIDECAR_CONTROL_ADDR": "127.0.0.1:0",
	}
}

// TestBadConfiguration: whatever starts with a wrong configuration ends with 64 and a line for each mistake, without a
// secret.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(file, []byte("canary-content\n"), 0o600))
	env := map[string]string{
		"SIDECAR_SERVICE": "Wms Cincout", "SIDECAR_AMQP_URL": "http://u:canary-secret@127.0.0.1/", "SIDECAR_RETRY_DELAY": "7",
		"SIDECAR_APP_TOKEN": "canary-app-token", "SIDECAR_APP_TOKEN_FILE": file, "SIDECAR_AMQP_PASSWORD_FILE": "/dev/zero",
		"SIDECAR_CONCURRENCY": "100", "SIDECAR_PREFETCH": "50", "SIDECAR_CONTROL_ADDR": "0.0.0.0:0", "SIDECAR_CONCURENCY": "1",
		"SIDECAR_TOPOLOGY": "per-queue", "SIDECAR_TYPO": "canary-typo",
	}
	for _, args := range [][]string{{"run"}, {"config"}, {"check"}, {"plan"}, {"dlq", "list"}, {"outbox", "status"}} {
		r := command(t, env, args...)
		if r.code != 64 || strings.Contains(r.all(), "canary") {
			t.Errorf("%q: exit %d, or a secret is shown:\n%s", args, r.code, r.all())
		}
		for name := range env {
			if !strings.Contains(r.all(), name) {
				t.Errorf("%q does not name %s:\n%s", args, name, r.all())
			}
		}
	}
}

// TestExplain: what a message and an answer come to, with the configuration that the sidecar would have.
func TestExplain(t *testing.T) {
	t.Parallel()
	env := valid()
	env["SIDECAR_ROUTES"], env["SIDECAR_APP_URL"] = "order.#=/orders/{routing_key}, type:refund.*=/refunds", "unix:///run/app.sock:/in?key=s3cr3t"
	env["SIDECAR_ROUTES_ELSE"], env["SIDECAR_RESPONSE_DIALECT"] = "park", "dapr"
	order := []string{"--routing-key", "order.created"}
	for _, c := range []struct {
		args  []string
		words []string
	}{
		{[]string{"--status", "503", "--retry", "10"}, []string{": park", "max_retries"}},
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
	if r := command(t, valid(), "explain", "--status", "200", "--body", "{}"); r.code != 64 || !strings.Contains(r.stderr, "SIDECAR_RESPONSE_DIALECT") {
		t.Errorf("a body in no dialect: exit %d, %s", r.code, r.all())
	}
}

// importDefinitions is what `rabbitmqctl import_definitions FILE` runs inside the node. The file itself may be out of
// the node's sight, and standard input is not read everywhere.
func importDefinitions(t testing.TB, json string) {
	t.Helper()
	brokertest.Eval(t, "ok = rabbit_definitions:import_raw(<<"+strconv.Quote(json)+">>)")
}
