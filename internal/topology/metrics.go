package topology

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	ready *prometheus.GaugeVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{ready: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_queue_messages_ready",
		Help: "Messages ready in a queue of the topology, looked up every 15 seconds: main is the service's queue, retry what waits to be tried again, dlq what is parked.",
	}, []string{"queue", "kind"})}
	r.MustRegister(m.ready)
	return m
}

// set replaces all depths: a queue that is gone has none.
func (m *metrics) set(depths []Depth) {
	m.ready.Reset()
	for _, d := range depths {
		m.ready.WithLabelValues(d.Queue, string(d.Kind)).Set(float64(d.Ready))
	}
}
