package declare

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Depths has the depths that all watchers of a process measured last, for those who show them: the metric
// sidecar_queue_messages_ready is one. A queue may be part of more than one plan.
type Depths struct {
	desc *prometheus.Desc

	mu       sync.Mutex
	watchers []*Watcher
}

// NewDepths registers the metric.
func NewDepths(r prometheus.Registerer) *Depths {
	d := &Depths{desc: prometheus.NewDesc("sidecar_queue_messages_ready",
		fmt.Sprintf("Messages ready in a queue of the topology, updated every %d seconds: main is the service's "+
			"queue, retry what waits to be tried again, dlq what is parked.", DefaultEvery/time.Second),
		[]string{"queue", "kind", "main"}, nil)}
	r.MustRegister(d)
	return d
}

func (d *Depths) add(w *Watcher) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers = append(d.watchers, w)
}

// All returns each queue once for each kind that it has, in the order of the watchers and of their plans; never nil.
func (d *Depths) All() []Depth {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := []Depth{}
	for _, w := range d.watchers {
		for _, depth := range w.depths() {
			if !slices.ContainsFunc(all, func(a Depth) bool { return a.Queue == depth.Queue && a.Kind == depth.Kind }) {
				all = append(all, depth)
			}
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
