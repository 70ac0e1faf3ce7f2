package topologytest

import (
	"context"
	"testing"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

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
		crash(t, url, plan)
	}
	brokertest.WaitReady(t, url, plan.Queue, crashMessages)
	r := start(t, plan)
	for _, id := range ids {
		r.acked(t, id)
		if list := r.app.Seen(id); len(list) != 1 || list[0].Number("Amqp-Retry-Count") != 0 {
			t.Errorf("%s was received %d times, Amqp-Retry-Count %q", id, len(list), list[0].Header.Get("Amqp-Retry-Count"))
		}
	}
	r.stop()
	for _, q := range plan.Queues {
		brokertest.WaitReady(t, url, q.Name, 0)
	}
}

// crash takes all messages on a session and kills it.
func crash(t *testing.T, url string, plan *topology.Plan) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := dial(t, url)
	defer s.Kill()
	sub, err := s.Subscribe(ctx, plan.Queue)
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := sub.Consume(ctx, crashMessages)
	if err != nil {
		t.Fatal(err)
	}
	var batch []*broker.Delivery
	for n := 0; n < crashMessages; n += len(batch) {
		select {
		case <-deliveries.Ready():
			batch, _ = deliveries.Take(batch)
		case <-ctx.Done():
			t.Fatalf("%d messages came, want %d", n, crashMessages)
		}
	}
}
