package brokertest

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"sidecar/internal/testkit/console"
	"sidecar/internal/testkit/must"
)

// place is where a test finds its broker: a node, and a virtual host on it that is the test's own.
type place struct {
	node  *node
	vhost string
	test  string
}

// places holds the place of each running test by the test's name.
var places sync.Map

// URL returns the AMQP URL of a virtual host that belongs to this test alone, with rights to everything. Subtests use
// the virtual host of their parent if the parent has asked before. It is deleted when the test ends.
func URL(t testing.TB) string {
	t.Helper()
	p := placeOf(t)
	u := *p.node.url
	u.Path = "/" + p.vhost
	return u.String()
}

// VhostName returns the name of the virtual host in the URL of this test.
func VhostName(t testing.TB) string {
	t.Helper()
	return placeOf(t).vhost
}

func placeOf(t testing.TB) *place {
	t.Helper()
	if _, name, _ := strings.Cut(t.Name(), "/"); strings.HasPrefix(name, "/") {
		t.Fatalf("subtest %q: with a slash in front, /a would be taken for the parent of /a/b", name)
	}
	if p := existing(t); p != nil {
		return p
	}
	n := sharedNode(t)
	if common.vhost == "" {
		return newPlace(t, n, "")
	}
	common.made.Do(func() { common.err = n.addVhost(common.vhost, "") })
	must.Do(t, common.err)
	return keep(t, &place{node: n, vhost: common.vhost, test: t.Name()})
}

// common is the virtual host of OneVhost; "" is one for each test.
var common struct {
	vhost string
	made  sync.Once
	err   error
}

// OneVhost runs the tests of a package with one virtual host for all that use the shared node, because making and
// deleting one for each costs the broker 40 ms of computing. It is for packages whose tests choose their names by Name.
type OneVhost struct{ M *testing.M }

// Run returns the exit code of the tests.
func (o OneVhost) Run() int {
	common.vhost = fmt.Sprintf("together.%08x", rand.Uint32())
	code := o.M.Run()
	if n, err := shared(); err == nil {
		_, _ = n.Eval(console.Call("rabbit_vhost:delete", common.vhost, console.Actor)) // none where no test has asked
	}
	return code
}

// existing returns the place of the test or of its nearest parent that has one, nil if there is none.
func existing(t testing.TB) *place {
	for name := t.Name(); ; name = name[:strings.LastIndexByte(name, '/')] {
		if p, ok := places.Load(name); ok {
			return p.(*place)
		}
		if !strings.Contains(name, "/") {
			return nil
		}
	}
}

// newPlace makes a virtual host. settings are further entries of its metadata, each after a comma.
func newPlace(t testing.TB, n *node, settings string) *place {
	t.Helper()
	p := &place{node: n, vhost: Name(t, "vhost"), test: t.Name()}
	must.Do(t, n.addVhost(p.vhost, settings))
	t.Cleanup(func() {
		// The test may have deleted it. What the deletion takes of the broker, no test has to wait for.
		_, _ = n.Eval("spawn(fun() -> " + console.Call("rabbit_vhost:delete", p.vhost, console.Actor) + " end)")
	})
	return keep(t, p)
}

// keep makes p the place of the test until it ends.
func keep(t testing.TB, p *place) *place {
	t.Helper()
	places.Store(p.test, p)
	t.Cleanup(func() { places.Delete(p.test) })
	return p
}

// addVhost makes a virtual host with all rights for the node's user.
func (n *node) addVhost(name, settings string) error {
	_, err := n.Eval("rabbit_vhost:add(" + console.Binary(name) + ", #{description => <<>>, tags => []" + settings +
		"}, " + console.Binary(console.Actor) + "), " + console.Call("rabbit_auth_backend_internal:set_permissions",
		n.url.User.Username(), name, ".*", ".*", ".*", console.Actor))
	return err
}

// DefaultQueueType gives the test another virtual host: queues that are declared in it without a type get this one.
// Call it before URL.
func DefaultQueueType(t testing.TB, queueType string) {
	t.Helper()
	newPlace(t, placeOf(t).node, ", default_queue_type => "+console.Binary(queueType))
}

var shared = sync.OnceValues(func() (*node, error) {
	return newNode(os.Getenv("AMQP_URL"), os.Getenv("BROKER_CTL"), os.Getenv("BROKER_DIR"))
})

func sharedNode(t testing.TB) *node {
	t.Helper()
	n, err := shared()
	if err != nil {
		t.Fatalf("%v: use make test PKG=…, or scripts/broker.sh run 0 go test …", err)
	}
	return n
}

// User creates a user for this test alone, with all rights in the test's virtual host, and returns its name.
func User(t testing.TB, password string) string {
	t.Helper()
	p := placeOf(t)
	name := Name(t, "user")
	p.node.must(t, console.Call("rabbit_auth_backend_internal:add_user", name, password, console.Actor))
	t.Cleanup(func() {
		_, _ = p.node.Eval(console.Call("rabbit_auth_backend_internal:delete_user", name, console.Actor))
	})
	p.node.must(t, console.Call("rabbit_auth_backend_internal:set_permissions", name, p.vhost, ".*", ".*", ".*",
		console.Actor))
	return name
}

// URLAs returns the URL of the test's virtual host for another user.
func URLAs(t testing.TB, user, password string) string {
	t.Helper()
	u, err := url.Parse(URL(t))
	if err != nil {
		t.Fatal("the broker's URL cannot be parsed")
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}
