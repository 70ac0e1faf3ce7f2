package topologytest

import (
	"net/http"
	"strconv"
	"testing"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
)

// TestPausesAtALimit: a pause gives back what was received and not attempted. However often that happens, a delivery
// limit is not reached.
func TestPausesAtALimit(t *testing.T) {
	t.Parallel()
	for limit, pauses := range map[int]int{3: 6, 20: 22} {
		t.Run(strconv.Itoa(limit), func(t *testing.T) {
			t.Parallel()
			s := shape{given: quorum(argLimit, limit)}
			plan, url := s.plan(t), brokertest.URL(t)
			s.declare(t, url)
			r := start(t, plan)
			gate := make(chan struct{})
			ids := named("paused", 3*concurrency)
			for _, id := range ids {
				r.app.On(id, apptest.Held(gate, status(http.StatusOK)))
			}
			r.consumes(t)
			r.send(t, ids...)
			for range pauses {
				r.consumes(t)
				brokertest.WaitReady(t, url, ownQueue, 0)
				r.flow.Hold(flow.Topology, "a pause")
				brokertest.Eventually(t, patience, "the sidecar pauses", func() bool { return !r.consumer.Active() })
				r.flow.Lift(flow.Topology)
			}
			close(gate)
			r.acked(t, ids...)
			for _, id := range ids {
				r.receipts(t, id, 0)
			}
		})
	}
}
