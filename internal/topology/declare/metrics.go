package declare

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/topology"
)

// newMetrics registers the metrics of a plan and returns the one that has to be measured.
func newMetrics(r prometheus.Registerer, p *topology.Plan) *prometheus.GaugeVec {
	ready := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_queue_messages_ready",
		Help: fmt.Sprintf("Messages ready in a queue of the topology, updated every %d seconds: main is the service's "+
			"queue, retry what waits to be tried again, dlq what is parked.", DefaultEvery/time.Second),
	}, []string{"queue", "kind"})
	limit := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_max_retries", Help: "Retries a message gets before it is parked, as configured.",
	}, []string{"queue"})
	limit.WithLabelValues(p.Queue).Set(float64(p.MaxRetries))
	r.MustRegister(ready, limit)
	return ready
}
