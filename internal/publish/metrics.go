package publish

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics counts messages, those of a batch one by one. The label exchange is an alias of the configuration, or empty for
// what did not get as far as that.
type metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	byAlias  map[string]*aliasMetrics
}

type aliasMetrics struct {
	published prometheus.Counter
	duration  prometheus.Observer
}

func newMetrics(r prometheus.Registerer, aliases map[string]string) *metrics {
	m := &metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_publish_requests_total",
			Help: "Messages that the app wanted to publish over HTTP, by what became of them.",
		}, []string{"exchange", "result"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "sidecar_publish_duration_seconds",
			Help:    "Time from the arrival of a message to the answer, for messages that were read and allowed.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
		}, []string{"exchange"}),
		byAlias: map[string]*aliasMetrics{},
	}
	for alias := range aliases {
		for _, c := range codes {
			m.requests.WithLabelValues(alias, string(c))
		}
		m.byAlias[alias] = &aliasMetrics{published: m.requests.WithLabelValues(alias, string(published)), duration: m.duration.WithLabelValues(alias)}
	}
	if r != nil {
		for _, c := range []prometheus.Collector{m.requests, m.duration} {
			if err := r.Register(c); err != nil {
				panic(err) // two metrics of one name: a mistake in this program
			}
		}
	}
	return m
}

// watch shows what is under way.
func (m *metrics) watch(r prometheus.Registerer, f *inflight) {
	if r == nil {
		return
	}
	err := r.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_publish_inflight",
		Help: "Messages of the app that wait for the broker's confirm.",
	}, func() float64 { return float64(f.messages()) }))
	if err != nil {
		panic(err)
	}
}

// count notes what became of a message. alias must be one of the configuration, or empty.
func (m *metrics) count(alias string, c code, d time.Duration) {
	a := m.byAlias[alias]
	if a == nil {
		m.requests.WithLabelValues("", string(c)).Inc()
		return
	}
	a.duration.Observe(d.Seconds())
	if c == published {
		a.published.Inc()
		return
	}
	m.requests.WithLabelValues(alias, string(c)).Inc()
}
