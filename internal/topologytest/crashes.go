package topologytest

import (
	"context"
	"slices"
	"testing"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func (r *rig) brokenTopology() bool {
	return slices.ContainsFunc(r.flow.Holds(), func(h flow.Hold) bool { return h.Reason == flow.Topology })
}

const (
	crashTimes    = 25 // beyond every delivery limit that a broker has by itself
	fewCrashes    = 10 // below it
	crashMessages = 4
)

// crashes: a consumer that dies over and over with messages in flight costs none of them. A delivery limit of the
// broker's own would drop all of them on the way, or send them round although no attempt failed. A plan that leaves the
// limit to the broker has a warning for it, and gets fewer crashes.
func crashes(t *testing.T, plan *topology.Plan) {
	url := brokertest.URL(t)
	declareTopology(t, url, plan)
	ids := named("crash", crashMessages)
	(&rig{plan: plan, url: url}).send(t, ids...)
	times := crashTimes
	for _, q := range plan.Queues {
		quorum := q.Args[topology.ArgType] == topology.TypeQuorum
		if q.Name == plan.Queue && quorum && q.Args[topology.ArgDeliveryLimit] == nil {
			times = fewCrashes
		}
	}
	for range times {
		crash(t, url, plan, crashMessages)
	}
	brokertest.WaitReady(t, url, plan.Queue, crashMessages)
	r := start(t, plan)
	r.acked(t, ids...)
	for _, id := range ids {
		r.receipts(t, id, 0)
	}
	r.stopsEmpty(t)
}

// crash takes all messages on a session and kills it.
func crash(t *testing.T, url string, plan *topology.Plan, messages int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := dial(t, url)
	defer s.Kill()
	sub := must.Get(s.Subscribe(ctx, plan.Queue))(t)
	deliveries := must.Get(sub.Consume(ctx, messages))(t)
	var batch []*broker.Delivery
	for n := 0; n < messages; n += len(batch) {
		select {
		case <-deliveries.Ready():
			batch, _ = deliveries.Take(batch)
		case <-ctx.Done():
			t.Fatalf("%d messages came, want %d", n, messages)
		}
	}
}
