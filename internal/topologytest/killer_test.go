package topologytest

import (
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// TestKillerEnds: the delivery limit of native takes a message away that ends its consumer each time. The broker moves it
// to the dead-letter queue.
func TestKillerEnds(t *testing.T) {
	t.Parallel()
	one := 1
	plan := build(t, topology.Options{Preset: topology.PresetNative, MaxRetries: &one, RetryDelay: brief})
	place(t, plan)
	url := brokertest.URL(t)
	declareTopology(t, url, plan)
	(&rig{plan: plan, url: url}).send(t, "killer")
	for range 1 + plan.OwnQueue().Args[topology.ArgDeliveryLimit].(int64) {
		crash(t, url, plan, 1)
	}
	d := brokertest.Get(t, url, plan.Park.Queue, patience)
	if d.MessageId != "killer" || d.Headers["x-first-death-reason"] != "delivery_limit" || d.Headers["x-final-reason"] != nil {
		t.Errorf("%s in the dead-letter queue: %v", d.MessageId, d.Headers)
	}
}
