package declare

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// NewReady registers the metric of the queues' depths, which all watchers of a process share: a queue may be part of
// more than one plan.
func NewReady(r prometheus.Registerer) *prometheus.GaugeVec {
	ready := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_queue_messages_ready",
		Help: fmt.Sprintf("Messages ready in a queue of the topology, updated every %d seconds: main is the service's "+
			"queue, retry what waits to be tried again, dlq what is parked.", DefaultEvery/time.Second),
	}, []string{"queue", "kind"})
	r.MustRegister(ready)
	return ready
}
