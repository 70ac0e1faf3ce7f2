package declare

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/topology"
)

type metrics struct {
	ready *prometheus.GaugeVec
	shown []Depth // only the watch touches it
}

func newMetrics(r prometheus.Registerer, p *topology.Plan) *metrics {
	m := &metrics{
		ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "sidecar_queue_messages_ready",
			Help: "Messages ready in a queue of the topology, updated every 15 seconds: main is the service's queue, retry " +
				"what waits to be tried again, dlq what is parked.",
		}, []string{"queue", "kind"}),
	}
	limit := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_max_retries", Help: "Retries a message gets before it is parked, as configured.",
	}, []string{"queue"})
	limit.WithLabelValues(p.Queue).Set(float64(p.MaxRetries))
	r.MustRegister(m.ready, limit)
	return m
}

// set replaces all depths: a queue that is gone has none. Those that stay are never absent in between, because a scrape
// that comes just then would end every alert that has waited for its time.
func (m *metrics) set(depths []Depth) {
	for _, d := range depths {
		m.ready.WithLabelValues(d.Queue, string(d.Kind)).Set(float64(d.Ready))
	}
	for _, old := range m.shown {
		if !slices.ContainsFunc(depths, func(d Depth) bool { return d.Queue == old.Queue }) {
			m.ready.DeleteLabelValues(old.Queue, string(old.Kind))
		}
	}
	m.shown = depths
}
