package admin

import (
	"net/http"
	"strings"
	"testing"
)

// several is a server over two subscriptions that have names.
func several(t *testing.T) *running {
	t.Helper()
	r := start(t, func(o *Options) {
		o.Topologies = nil
		for _, name := range []string{"orders", "refunds"} {
			o.Topologies = append(o.Topologies, topologyOf(name, "wms."+name))
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
	r.wantBody("refunds", r.do(http.MethodGet, r.admin, "/readyz?subscription=refunds", nil), http.StatusOK,
		`{"ready":true,"checks":[{"name":"broker","ok":true},{"name":"consuming","subscription":"refunds","ok":false}]}`)
	for query, want := range map[string]string{
		"subscription=refund": `no subscription \"refund\". The names are: orders, refunds.`, "subscription=": `no subscription \"\"`,
		"subscription=orders&subscription=refunds": `no subscription \"orders,refunds\"`,
	} {
		r.wantProblem(query, r.do(http.MethodGet, r.admin, "/readyz?"+query, nil), http.StatusNotFound, want)
	}
	r.want("another parameter", r.do(http.MethodGet, r.admin, "/readyz?verbose&%zz", nil), http.StatusOK) // probes may have any
	unnamed := start(t, nil)
	got := unnamed.do(http.MethodGet, unnamed.admin, "/readyz?subscription=orders", nil)
	unnamed.wantProblem("no names", got, http.StatusNotFound, "The names are: .")
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
	r.wantLogged(1, `"action":"pause","peer":"127.0.0.1:`, `"status":200,"subscription":"orders"`)
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
