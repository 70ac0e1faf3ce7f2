package topologytest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// TestChangedDelay: during an upgrade that changes the delay, replicas with the old and the new one share the service's
// queue. The old ones reject into the retry queue that exists, the new ones publish to a queue beside it, and the
// retries of both add up.
func TestChangedDelay(t *testing.T) {
	t.Parallel()
	url, plans := brokertest.URL(t), map[string]*topology.Plan{}
	retries := 5
	for name, delay := range map[string]time.Duration{"old": 2 * brief, "new": brief} {
		p, err := topology.Build(topology.Options{
			Service: "orders-svc", RetryDelay: delay, MaxRetries: &retries,
		})
		if err != nil {
			t.Fatal(err)
		}
		plans[name] = p
	}
	declareTopology(t, url, plans["old"])
	before, after := start(t, plans["old"]), start(t, plans["new"])
	for _, r := range []*rig{before, after} {
		brokertest.Eventually(t, patience, "the sidecar consumes", r.consumer.Active)
	}
	ids := named("fails", 30)
	for _, id := range ids {
		before.app.On(id, failing())
		after.app.On(id, failing())
	}
	before.send(t, ids...)
	both := map[string]int{}
	for range ids {
		d := brokertest.Get(t, url, deadQueue, patience)
		both[d.MessageId]++
		if n := d.Headers["x-final-retry-count"]; n != int32(retries) { //nolint:gosec // a few
			t.Errorf("%s is parked with x-final-retry-count %v", d.MessageId, n)
		}
	}
	before.stop()
	returned := message("waited in the old queue")
	returned.Headers = amqp.Table{"x-retry-count": 1}
	brokertest.Publish(t, brokertest.Channel(t, url), "", waitQueue, returned)
	after.acked(t, returned.MessageId)
	after.stop()
	total := 0
	for _, id := range ids {
		n := len(before.app.Seen(id)) + len(after.app.Seen(id))
		if total += len(after.app.Seen(id)); n != retries+1 || both[id] != 1 {
			t.Errorf("%s was received %d times, parked %d times", id, n, both[id])
		}
	}
	if total == 0 || total == len(ids)*(retries+1) {
		t.Errorf("the new sidecar received %d times: the test shows nothing", total)
	}
	for _, q := range []string{ownQueue, waitQueue, waitQueue + ".150ms", deadQueue} {
		brokertest.WaitReady(t, url, q, 0)
	}
}
