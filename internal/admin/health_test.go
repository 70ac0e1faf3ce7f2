package admin

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/telemetry"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for path, want := range map[string]string{"/livez": `{"live":true}`, "/startupz": `{"started":true}`} {
		got := r.do(http.MethodGet, r.admin, path, func(q *http.Request) { q.Host = "pod-1.wms.svc" }) // or any other name
		if got.StatusCode != http.StatusOK || got.body != want+"\n" || got.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %d %q", path, got.StatusCode, got.body)
		}
	}
}

func TestReady(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	r.state.readiness = Readiness{Checks: []Check{{Name: "broker", Detail: "connection refused"}, {Name: "app", OK: true}}}
	got := r.do(http.MethodGet, r.admin, "/readyz", nil)
	want := `{"ready":false,"checks":[{"name":"broker","ok":false,"detail":"connection refused"},{"name":"app","ok":true}]}` + "\n"
	if got.StatusCode != http.StatusServiceUnavailable || got.body != want {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}

	r.state.setReady(Readiness{Ready: true, Checks: []Check{{Name: "broker", OK: true}}})
	if got := r.do(http.MethodGet, r.admin, "/readyz", nil); got.StatusCode != http.StatusOK || !strings.HasPrefix(got.body, `{"ready":true`) {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
}

func TestReadyBroker(t *testing.T) {
	t.Parallel()
	r := start(t, nil)
	for _, c := range []struct {
		checks []Check
		status int
		body   string
	}{
		{[]Check{{Name: "broker", OK: true}, {Name: "topology"}}, http.StatusOK, `{"name":"broker","ok":true}`},
		{[]Check{{Name: "broker", Detail: "connection refused"}}, http.StatusServiceUnavailable, `{"name":"broker","ok":false,"detail":"connection refused"}`},
		{nil, http.StatusServiceUnavailable, `{"name":"broker","ok":false}`},
	} {
		r.state.setReady(Readiness{Checks: c.checks})
		if got := r.do(http.MethodGet, r.admin, "/readyz/broker", nil); got.StatusCode != c.status || got.body != c.body+"\n" {
			t.Errorf("%d %s", got.StatusCode, got.body)
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
	if err := registry.Register(broken{}); err != nil {
		t.Fatal(err)
	}
	got := r.do(http.MethodGet, r.admin, "/metrics", nil)
	if got.StatusCode != http.StatusOK || !strings.Contains(got.body, "sidecar_build_info") {
		t.Errorf("%d %s", got.StatusCode, got.body)
	}
	if !strings.Contains(r.log.String(), `"library":"prometheus"`) {
		t.Errorf("log: %s", r.log)
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
