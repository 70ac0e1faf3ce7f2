package dispatch

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
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

	for code, want := range map[string]float64{
		"200": 2, "204": 1, "302": 1, "404": 1, "503": 1, "invalid": 2, "reset": 1, "interrupted": 1, "refused": 1,
	} {
		if got := brokertest.Metric(t, r, "sidecar_http_requests_total", "code", code); got != want {
			t.Errorf("code %s: %v, want %v", code, got, want)
		}
	}
	for outcome, want := range map[string]float64{"2xx": 3, "3xx": 1, "4xx": 1, "5xx": 1, "error": 5} {
		if got := brokertest.Metric(t, r, "sidecar_http_request_duration_seconds", "outcome", outcome); got != want {
			t.Errorf("outcome %s: %v, want %v", outcome, got, want)
		}
	}
	for name, want := range map[string]float64{
		"sidecar_http_requests_total": 11, "sidecar_http_request_duration_seconds": 11, "sidecar_headers_truncated_total": 2,
	} {
		if got := brokertest.Metric(t, r, name); got != want {
			t.Errorf("%s: %v in all, want %v", name, got, want)
		}
	}
}
