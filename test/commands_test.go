package test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
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

// importDefinitions is what `rabbitmqctl import_definitions FILE` runs inside the node. The file itself may be out of
// the node's sight, and standard input is not read everywhere.
func importDefinitions(t testing.TB, json string) {
	t.Helper()
	brokertest.Eval(t, "ok = rabbit_definitions:import_raw(<<"+strconv.Quote(json)+">>)")
}
