package publish

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics counts messages, those of a batch one by one. The label exchange is the alias, or empty without a valid one.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer, aliases map[string]string, underway *atomic.Int64) *metrics {
	create := promauto.With(r)
	create.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_publish_inflight",
		Help: "Messages of the app that wait for the broker's confirm.",
	}, func() float64 { return float64(underway.Load()) })
	m := &metrics{
		requests: create.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_publish_requests_total",
			Help: "Messages that the app wanted to publish over HTTP, by result.",
		}, []string{"exchange", "result"}),
		duration: create.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sidecar_publish_duration_seconds",
			Help:    "Time from the arrival of a message to the answer, for messages that were read and allowed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"exchange"}),
	}
	for alias := range aliases {
		m.requests.WithLabelValues(alias, string(internal))
		for _, o := range outcomes {
			m.requests.WithLabelValues(alias, string(o.code))
		}
		m.duration.WithLabelValues(alias)
	}
	return m
}

// count records the result of a message. Only messages with a valid alias have a duration.
func (m *metrics) count(alias string, c code, d time.Duration) {
	m.requests.WithLabelValues(alias, string(c)).Inc()
	if alias != "" {
		m.duration.WithLabelValues(alias).Observe(d.Seconds())
	}
}
