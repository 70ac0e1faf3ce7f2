package brokertest

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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

// WithoutPlugin disables a plugin in the node until the test ends.
func (n *Node) WithoutPlugin(name string) {
	n.t.Helper()
	n.n.must(n.t, plugins("lists:delete("+name+", Enabled)"))
	n.t.Cleanup(func() { n.n.must(n.t, plugins("["+name+" | Enabled]")) })
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
