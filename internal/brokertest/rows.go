package brokertest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/console"
	"sidecar/internal/testkit/must"
)

// Rows lists the queues, consumers or exchanges of the test's virtual host, or all connections of its node, one map a
// row with the named columns, as `rabbitmqctl --formatter json list_queues name arguments` does. Texts are strings,
// tables are maps.
func Rows(t testing.TB, what string, columns ...string) []map[string]any {
	t.Helper()
	p := placeOf(t)
	list, ok := map[string]string{
		"queues": "rabbit_amqqueue:info_all(" + console.Binary(p.vhost) + ", [%s])",
		"consumers": "[[{K, proplists:get_value(K, R)} || K <- [%s]] || R <- rabbit_amqqueue:consumers_all(" +
			console.Binary(p.vhost) + ")]",
		"exchanges":   "rabbit_exchange:info_all(" + console.Binary(p.vhost) + ", [%s])",
		"connections": "rabbit_networking:connection_info_all([%s])",
	}[what]
	if !ok {
		t.Fatalf("brokertest.Rows does not list %q", what)
	}
	text := p.node.must(t, fmt.Sprintf(rows, fmt.Sprintf(list, strings.Join(columns, ", "))))
	var found []map[string]any
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatalf("the broker listed %s as %q: %v", what, text, err)
	}
	return found
}

// rows makes JSON of a list of property lists: names of objects, AMQP tables and process identifiers have no JSON form
// of their own.
const rows = `Plain = fun
  P({resource, _, _, Name}) -> Name;
  P([{_, _, _} | _] = Table) -> maps:from_list([{K, P(V)} || {K, _, V} <- Table]);
  P(V) when is_pid(V) -> list_to_binary(pid_to_list(V));
  P(V) when is_list(V) -> [P(E) || E <- V];
  P(V) when is_tuple(V) -> P(tuple_to_list(V));
  P(V) -> V
end,
iolist_to_binary(rabbit_json:encode([maps:from_list([{K, Plain(V)} || {K, V} <- Row]) || Row <- %s]))`

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

// Management returns the URL of the management HTTP API of the test's node, without a user. The first call enables the
// plugin in the running node, which takes half a second: no other test pays for it.
func Management(t testing.TB) string {
	t.Helper()
	p := placeOf(t)
	port, err := os.ReadFile(filepath.Join(p.node.Dir, "management"))
	if err != nil {
		t.Fatalf("read the port of the management API: %v", err)
	}
	p.node.must(t, plugins("[rabbitmq_management | Enabled]"))
	u := url.URL{Scheme: "http", Host: "127.0.0.1:" + strings.TrimSpace(string(port))}
	return u.String()
}

// plugins is a call that enables those of a list, which is made of the list Enabled. Calls of several tests at a time
// are serialised. A list that is enabled already is left alone: rabbit_plugins:ensure opens the archives of all plugins
// each time, and tests that poll the management API ask for it with every poll.
func plugins(list string) string {
	return `global:trans({sidecar_plugins, self()}, fun() ->
  {ok, File} = application:get_env(rabbit, enabled_plugins_file),
  {ok, [Enabled]} = file:consult(File),
  case lists:usort(` + list + `) of
    Enabled -> ok;
    Wanted ->
      ok = file:write_file(File, io_lib:format("~p.~n", [Wanted])),
      {ok, _, _} = rabbit_plugins:ensure(File)
  end
end)`
}
