package brokertest

import (
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/console"
	"sidecar/internal/testkit/must"
)

// must evaluates an Erlang expression in the node.
func (n *node) must(t testing.TB, expression string) string {
	t.Helper()
	return must.Get(n.Eval(expression))(t)
}

// Ctl does on the test's node what `rabbitmqctl args…` would do, for the commands of console.Command. Commands that
// change the node itself are for tests that have called OwnNode. Use Rows to list objects.
func Ctl(t testing.TB, args ...string) {
	t.Helper()
	p := placeOf(t)
	p.node.must(t, p.command(t, args))
}

// CtlLater does the same when the test ends, however it ends.
func CtlLater(t testing.TB, args ...string) {
	t.Helper()
	p := placeOf(t)
	expression := p.command(t, args)
	t.Cleanup(func() {
		if _, err := p.node.Eval(expression); err != nil {
			t.Error(err)
		}
	})
}

// Eval evaluates an Erlang expression in the test's node and returns its value as text.
func Eval(t testing.TB, expression string) string {
	t.Helper()
	return placeOf(t).node.must(t, strings.TrimSuffix(strings.TrimSpace(expression), "."))
}

func (p *place) command(t testing.TB, args []string) string {
	t.Helper()
	if n, err := shared(); err == nil && n == p.node && slices.Contains([]string{"stop_app", "start_app",
		"set_vm_memory_high_watermark"}, args[0]) {
		t.Fatalf("%s changes the node that all tests share: call OwnNode first", args[0])
	}
	return must.Get(console.Command(p.vhost, args...))(t)
}

// CtlPath is rabbitmqctl for the test's node, for programs that call it themselves.
func CtlPath(t testing.TB) string {
	t.Helper()
	return placeOf(t).node.Ctl
}
