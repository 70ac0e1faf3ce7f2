package admin

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
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

type broken struct{}

func (broken) Describe(c chan<- *prometheus.Desc) { prometheus.DescribeByCollect(broken{}, c) }

func (broken) Collect(c chan<- prometheus.Metric) {
	c <- prometheus.NewInvalidMetric(prometheus.NewDesc("broken", "broken", nil, nil), http.ErrBodyNotAllowed)
}

func TestOneBrokenMetricDoesNotHideTheOthers(t *testing.T) {
	t.Parallel()
	registry := telemetry.NewRegistry("1.2.3", "abc")
	r := start(t, func(o *Options) { o.Gatherer = registry })
	must.Do(t, registry.Register(broken{}))
	got := r.do(http.MethodGet, r.admin, "/metrics", nil)
	if got.StatusCode != http.StatusOK || !strings.Contains(got.body, "sidecar_build_info") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	r.wantLogged(1, `"library":"prometheus"`)
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
