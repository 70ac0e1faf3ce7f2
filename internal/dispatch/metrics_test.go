package dispatch

import (
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	statuses := []int{200, 200, 204, 302, 404, 503, 0, 999}
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for _, status := range statuses {
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(apptest.Status(status))
		}
		_, _ = c.Next()
	})
	target := newTarget(t, s.URL, func(o *Options) { o.Registerer, o.MaxBody = r, 100 })
	for range statuses {
		dispatch(t, target, sample())
	}
	dispatch(t, target, sample()) // reset
	large := sample()
	large.Body = make([]byte, 101)
	dispatch(t, target, large)
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	m := withHeaders(sample(), amqp.Table{"": "v", "日": "v"})
	target.Dispatch(stopped, m) // never encoded
	s.Close()
	dispatch(t, target, m) // refused

	want := map[string]float64{
		"sidecar_http_requests_total{code=200,}": 2, "sidecar_http_requests_total{code=204,}": 1,
		"sidecar_http_requests_total{code=302,}": 1, "sidecar_http_requests_total{code=404,}": 1,
		"sidecar_http_requests_total{code=503,}": 1, "sidecar_http_requests_total{code=invalid,}": 2,
		"sidecar_http_requests_total{code=reset,}": 1, "sidecar_http_requests_total{code=interrupted,}": 1,
		"sidecar_http_requests_total{code=refused,}":            1,
		"sidecar_http_request_duration_seconds{outcome=2xx,}":   3,
		"sidecar_http_request_duration_seconds{outcome=3xx,}":   1,
		"sidecar_http_request_duration_seconds{outcome=4xx,}":   1,
		"sidecar_http_request_duration_seconds{outcome=5xx,}":   1,
		"sidecar_http_request_duration_seconds{outcome=error,}": 5,
		"sidecar_headers_truncated_total{}":                     2,
	}
	got := gather(t, r)
	for name, v := range want {
		if got[name] != v {
			t.Errorf("%s: got %v, want %v", name, got[name], v)
		}
		delete(got, name)
	}
	for name, v := range got {
		t.Errorf("unexpected %s: %v", name, v)
	}
}

// gather returns every series; a histogram counts by its number of observations.
func gather(tb testing.TB, r prometheus.Gatherer) map[string]float64 {
	tb.Helper()
	families, err := r.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	series := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(f.GetName() + "{")
			for _, l := range m.GetLabel() {
				name.WriteString(l.GetName() + "=" + l.GetValue() + ",")
			}
			v := m.GetCounter().GetValue()
			if h := m.GetHistogram(); h != nil {
				v = float64(h.GetSampleCount())
			}
			series[name.String()+"}"] = v
		}
	}
	return series
}
