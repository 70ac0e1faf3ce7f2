package brokertest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sidecar/internal/testkit/console"
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
