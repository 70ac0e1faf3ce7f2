package admin

import (
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/topology"
)

// several is a server over two subscriptions that have names.
func several(t *testing.T) *running {
	t.Helper()
	r := start(t, func(o *Options) {
		o.Topologies = nil
		for _, name := range []string{"orders", "refunds"} {
			o.Topologies = append(o.Topologies, Topology{
				Subscription: name, Queue: "wms." + name, Exchanges: []topology.Exchange{}, Queues: []topology.Queue{}, Bindings: []topology.Binding{}, Waits: []Wait{},
			})
		}
	})
	r.state.names = []string{"orders", "refunds"}
	return r
}

// TestReadyOfOneSubscription: the query narrows the checks; a name that there is not is a 404 with the names.
func TestReadyOfOneSubscription(t *testing.T) {
	t.Parallel()
	r := several(t)
	r.state.setReady(Readiness{Ready: true, Checks: []Check{
		{Name: "broker", OK: true}, {Name: "consuming", Subscription: "orders", OK: true}, {Name: "consuming", Subscription: "refunds"},
	}})
	got := r.do(http.MethodGet, r.admin, "/readyz?subscription=refunds", nil)
	want := `{"ready":true,"checks":[{"name":"broker","ok":true},{"name":"consuming","subscription":"refunds","ok":false}]}` + "\n"
	if got.StatusCode != http.StatusOK || got.body != want {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	for query, want := range map[string]string{
		"subscription=refund": `no subscription \"refund\". The names are: orders, refunds.`, "subscription=": `no subscription \"\"`,
		"subscription=orders&subscription=refunds": `no subscription \"orders,refunds\"`,
	} {
		got := r.do(http.MethodGet, r.admin, "/readyz?"+query, nil)
		if r.wantProblem(query, got, http.StatusNotFound); !strings.Contains(got.body, want) {
			t.Errorf("%s: %s", query, got.body)
		}
	}
	r.want("another parameter", r.do(http.MethodGet, r.admin, "/readyz?verbose&%zz", nil), http.StatusOK) // probes may have any
	unnamed := start(t, nil)
	got = unnamed.do(http.MethodGet, unnamed.admin, "/readyz?subscription=orders", nil)
	if unnamed.wantProblem("no names", got, http.StatusNotFound); !strings.Contains(got.body, "The names are: .") {
		t.Errorf("%s", got.body)
	}
}

// TestPauseOfOneSubscription: a change is for the subscription that is named, and for none when the query is wrong.
func TestPauseOfOneSubscription(t *testing.T) {
	t.Parallel()
	r := several(t)
	post := func(path string) reply { return r.do(http.MethodPost, r.control, path, nil) }
	for _, path := range []string{"/pause?subscription=orders", "/resume?subscription=orders", "/pause"} {
		r.want(path, post(path), http.StatusOK)
	}
	for path, want := range map[string]int{
		"/pause?subscription=order": http.StatusNotFound, "/resume?subscription=": http.StatusNotFound,
		"/pause?subscriptions=orders": http.StatusBadRequest, "/pause?subscription=orders&%zz": http.StatusBadRequest,
		"/drain?subscription=orders": http.StatusBadRequest,
	} {
		r.wantProblem(path, post(path), want)
	}
	r.wantCalled("pause orders,resume orders,pause")
	if log := r.log.String(); !strings.Contains(log, `"action":"pause","peer":"127.0.0.1:`) || !strings.Contains(log, `"status":200,"subscription":"orders"`) {
		t.Errorf("log: %s", log)
	}
}

// TestTopologies: a list where subscriptions have names.
func TestTopologies(t *testing.T) {
	t.Parallel()
	r := several(t)
	got := r.do(http.MethodGet, r.control, "/topology", nil)
	if !strings.HasPrefix(got.body, `{"subscriptions":[{"subscription":"orders",`) || strings.Count(got.body, `"preset"`) != 2 {
		t.Errorf("%s", got.body)
	}
}
