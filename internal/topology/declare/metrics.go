package declare

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// DefaultEvery is how often the queues are measured, how often a topology with findings is checked again, and how often
// a declared topology is declared again.
const DefaultEvery = 15 * time.Second

// Depths are the last measured depths of all plans of a process. They are the metric sidecar_queue_messages_ready. A
// queue may be part of more than one plan.
type Depths struct {
	desc *prometheus.Desc
	last func() []Depth
}

// NewDepths registers the metric. last returns what was measured last.
func NewDepths(r prometheus.Registerer, last func() []Depth) *Depths {
	d := &Depths{last: last, desc: prometheus.NewDesc("sidecar_queue_messages_ready",
		fmt.Sprintf("Messages ready in a queue of the topology, updated every %d seconds: main is the service's "+
			"queue, retry what waits to be tried again, dlq what is parked.", DefaultEvery/time.Second),
		[]string{"queue", "kind", "main"}, nil)}
	r.MustRegister(d)
	return d
}

// All returns each queue once for each kind that it has; never nil.
func (d *Depths) All() []Depth {
	all := []Depth{}
	for _, depth := range d.last() {
		if !slices.ContainsFunc(all, func(a Depth) bool { return a.Queue == depth.Queue && a.Kind == depth.Kind }) {
			all = append(all, depth)
		}
	}
	return all
}

// Describe implements prometheus.Collector.
func (d *Depths) Describe(ch chan<- *prometheus.Desc) { ch <- d.desc }

// Collect implements prometheus.Collector.
func (d *Depths) Collect(ch chan<- prometheus.Metric) {
	for _, q := range d.All() {
		ch <- prometheus.MustNewConstMetric(d.desc, prometheus.GaugeValue, float64(q.Ready), q.Queue, string(q.Kind), q.Main)
	}
}
