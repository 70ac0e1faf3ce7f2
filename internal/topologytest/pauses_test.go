package topologytest

import (
	"net/http"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
)

// TestPausesAtALimit: a pause gives back what was received and not attempted. However often that happens, a delivery
// limit is not reached.
func TestPausesAtALimit(t *testing.T) {
	t.Parallel()
	pauses := map[string]int{"3": 6, "20": 22}
	for name, args := range map[string][]any{"3": {argLimit, 3}, "20": {argLimit, 20}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shape{given: queue(ownQueue, append([]any{"x-queue-type", "quorum"}, args...)...)}
			plan, url := s.plan(t), brokertest.URL(t)
			s.declare(t, url)
			r := start(t, plan)
			gate := make(chan struct{})
			ids := named("paused", 3*concurrency)
			for _, id := range ids {
				r.app.On(id, apptest.Held(gate, status(http.StatusOK)))
			}
			brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
			r.send(t, ids...)
			for range pauses[name] {
				brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
				brokertest.WaitReady(t, url, ownQueue, 0)
				r.flow.Hold(flow.Topology, "a pause")
				brokertest.Eventually(t, patience, "the sidecar pauses", func() bool { return !r.consumer.Active() })
				r.flow.Lift(flow.Topology)
			}
			close(gate)
			for _, id := range ids {
				r.acked(t, id)
				if list := r.app.Seen(id); len(list) != 1 || list[0].Number("Amqp-Retry-Count") != 0 {
					t.Errorf("%s was received %d times, Amqp-Retry-Count %q", id, len(list), list[0].Header.Get("Amqp-Retry-Count"))
				}
			}
		})
	}
}
