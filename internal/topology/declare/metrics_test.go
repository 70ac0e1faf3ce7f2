package declare

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/topology"
)

// TestDepthsOfSeveralWatchers: a queue that two plans have is one series, of the first plan that is watched.
func TestDepthsOfSeveralWatchers(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	all := NewDepths(registry)
	var watchers [2]*Watcher
	for i, queue := range []string{"first", "second"} {
		watchers[i] = NewWatcher(WatchOptions{Depths: all})
		watchers[i].last.Store(&[]Depth{{queue, queue, topology.KindMain, 1}, {"dlq", queue, topology.KindDLQ, 3}})
	}
	for _, want := range []map[string]float64{
		{"first main of first": 1, "second main of second": 1, "dlq dlq of first": 3}, {"second main of second": 1, "dlq dlq of second": 3}, {},
	} {
		if got := gauges(t, registry); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, w := range watchers {
			if w.last.Swap(nil) != nil {
				break
			}
		}
	}
}
