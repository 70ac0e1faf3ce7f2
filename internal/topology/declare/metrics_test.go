package declare

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/topology"
)

// TestDepthsHaveNoGap: a scrape between two looks, or in the middle of one, sees every queue that is there.
func TestDepthsHaveNoGap(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewWatcher(WatchOptions{Ready: NewReady(registry), Plan: build(t, topology.Options{Service: "wms-cincout"})})
	depths := []Depth{{"main", topology.KindMain, 1}, {"retry", topology.KindRetry, 2}, {"dlq", topology.KindDLQ, 3}}
	m.set(depths)
	var looks sync.WaitGroup
	stop := make(chan struct{})
	looks.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				m.set(depths)
			}
		}
	})
	for range 500 {
		if got := gauges(t, registry); len(got) != len(depths) {
			t.Errorf("a scrape sees only %v", got)
			break
		}
	}
	close(stop)
	looks.Wait()
	m.set(depths[:2])
	if got := gauges(t, registry); len(got) != 2 || got["dlq dlq"] != 0 {
		t.Errorf("a queue that is gone is still shown: %v", got)
	}
}
