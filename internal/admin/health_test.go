package admin

import (
	"net/http"
	"strings"
	"testing"

	"sidecar/internal/budget"
	"sidecar/internal/telemetry"
)

// TestProbes: what they answer, whatever name the prober has for the pod.
func TestProbes(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	ok, away := Check{Name: "broker", OK: true}, Check{Name: "broker", Detail: "connection refused"}
	for _, c := range []struct {
		path, body string
		readiness  Readiness
		status     int
	}{
		{"/livez", `{"live":true}`, Readiness{}, http.StatusOK},
		{"/startupz", `{"started":true}`, Readiness{}, http.StatusOK},
		{"/readyz", `{"ready":false,"checks":[{"name":"broker","ok":false,"detail":"connection refused"},{"name":"app","ok":true}]}`,
			Readiness{Checks: []Check{away, {Name: "app", OK: true}}}, http.StatusServiceUnavailable},
		{"/readyz", `{"ready":true,"checks":[{"name":"broker","ok":true}]}`, Readiness{Ready: true, Checks: []Check{ok}}, http.StatusOK},
		{"/readyz/broker", `{"name":"broker","ok":true}`, Readiness{Checks: []Check{ok, {Name: "topology"}}}, http.StatusOK},
		{"/readyz/broker", `{"name":"broker","ok":false,"detail":"connection refused"}`,
			Readiness{Checks: []Check{away}}, http.StatusServiceUnavailable},
		{"/readyz/broker", `{"name":"broker","ok":false}`, Readiness{}, http.StatusServiceUnavailable},
	} {
		r.state.setReady(c.readiness)
		got := r.do(http.MethodGet, r.admin, c.path, func(q *http.Request) { q.Host = "pod-1.wms.svc" })
		if r.wantBody(c.path, got, c.status, c.body); got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s", c.path, got.Header)
		}
	}
}

func TestHealthIsReadOnly(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	close(r.state.draining)
	close(r.state.drained)
	r.state.readiness = Readiness{Ready: true, Checks: []Check{{Name: CheckBroker, OK: true}}}
	for _, path := range []string{"/livez", "/startupz", "/readyz", "/readyz/broker", "/metrics", "/drained"} {
		for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PURGE"} {
			got := r.do(method, r.admin, path, nil)
			r.wantProblem(method+" "+path, got, http.StatusMethodNotAllowed)
			if got.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s: Allow %q", path, got.Header.Get("Allow"))
			}
		}
		if got := r.do(http.MethodHead, r.admin, path, nil); got.StatusCode != http.StatusOK || got.body != "" {
			t.Errorf("HEAD %s: %d %q", path, got.StatusCode, got.body)
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := start(t, func(o *Options) { o.Gatherer = telemetry.NewRegistry("1.2.3", "abc") })
	got := r.do(http.MethodGet, r.admin, "/metrics", func(q *http.Request) { q.Header.Set("Accept-Encoding", "gzip") })
	if got.StatusCode != http.StatusOK || got.Header.Get("Content-Encoding") != "" {
		t.Fatalf("%d %v", got.StatusCode, got.Header)
	}
	if !strings.Contains(got.body, `version="1.2.3"`) || !strings.HasPrefix(got.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Errorf("%v\n%s", got.Header, got.body)
	}
}

func TestScrapesAreBounded(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	fill(r.scrapes)
	got := r.do(http.MethodGet, r.admin, "/metrics", nil)
	r.wantProblem("full", got, http.StatusServiceUnavailable)
	if got.Header.Get("Retry-After") != "1" {
		t.Error("no Retry-After")
	}
	<-r.scrapes
	r.want("with a free slot", r.do(http.MethodGet, r.admin, "/metrics", nil), http.StatusOK)
}

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

// TestABodyWithoutMemory is refused before it is read, and takes no slot.
func TestABodyWithoutMemory(t *testing.T) {
	t.Parallel()
	b := budget.New(1 << 20)
	b.Account(budget.Deliveries).Take(b.Limit())
	r := start(t, func(o *Options) { o.Memory = b.Account(budget.Requests) })
	got := r.raw(r.control, "POST /pause HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
	if r.want("/pause", got, http.StatusServiceUnavailable); !got.Close {
		t.Error("the connection stays")
	}
	r.want("/livez", r.do(http.MethodGet, r.admin, "/livez", nil), http.StatusOK) // costs too little to be counted
}
