package declare

import (
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestDepthsHaveNoGap: a scrape between two looks, or in the middle of one, sees every queue that is there.
func TestDepthsHaveNoGap(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := NewWatcher(WatchOptions{Registerer: registry, Plan: build(t, topology.Options{Service: "wms-cincout"})})
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

func TestMaxRetries(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	p := build(t, topology.Options{Service: "wms-cincout"})
	newMetrics(registry, p)
	families := must.Get(registry.Gather())(t)
	for _, f := range families {
		if f.GetName() != "sidecar_max_retries" {
			continue
		}
		m := f.GetMetric()[0]
		if l := m.GetLabel()[0]; l.GetName() != "queue" || l.GetValue() != p.Queue || m.GetGauge().GetValue() != 10 {
			t.Errorf("%v", m)
		}
		return
	}
	t.Error("no sidecar_max_retries before the first look")
}
