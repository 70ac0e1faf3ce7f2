package topologytest

import (
	"encoding/json"
	"net/url"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// movedByHand: a parked message that a user publishes to the service's queue as it is has its one try, and is parked
// again. It goes on counting where it was, whatever the broker makes of the x-death it brings along.
func movedByHand(t *testing.T, r *shared) {
	const id = "by-hand"
	r.app.On(id, failing())
	r.send(t, id)
	first := r.givenUp(t, id, "max_retries")
	again := message(id)
	again.Headers = first.Headers
	for n := 2; n <= 3; n++ {
		r.put(t, again)
		r.ends(t, id, n, "park", "max_retries")
		d := r.lot.await(t, id, n)
		r.parkedAgain(t, &d, n-1)
		again.Headers = d.Headers
	}
}

// movedBeforeItsTime: a message that was parked with retries left has the rest of them when it is moved back.
func movedBeforeItsTime(t *testing.T, r *shared) {
	const id = "before-its-time"
	r.app.On(id, failing(), parking(), failing())
	r.send(t, id)
	first := r.givenUp(t, id, "disposition")
	again := message(id)
	again.Headers = first.Headers
	r.put(t, again)
	r.ends(t, id, 2, "park", "max_retries")
	d := r.lot.await(t, id, 2)
	if d.Headers["x-final-retry-count"] != int32(r.plan.MaxRetries) { //nolint:gosec // a few
		t.Errorf("x-final-retry-count is %v", d.Headers["x-final-retry-count"])
	}
	// The second is the attempt that parked, and the third the first one after the move.
	r.receipts(t, id, slices.Insert(counting(r.plan.MaxRetries), 1, 1)...)
}

// movedOutOfWaiting: a message that a user takes out of a retry queue and puts into the service's queue brings a count
// along that is no broker's any more. From RabbitMQ 4.0 a reject would begin at one again.
func movedOutOfWaiting(t *testing.T, r *shared) {
	const id = "out-of-waiting"
	retries := r.plan.MaxRetries - 1
	r.app.On(id, failing())
	m := message(id)
	m.Headers = amqp.Table{"x-death": []any{amqp.Table{
		"count": int64(retries), "reason": "rejected", "queue": r.plan.Queue, "exchange": "first",
		"routing-keys": []any{"key"},
		"time":         time.Now().Truncate(time.Second),
	}}}
	r.put(t, m)
	d := r.givenUp(t, id, "max_retries")
	r.receipts(t, id, retries, retries+1)
	if d.Headers["x-original-exchange"] != "first" || d.Headers["x-original-routing-key"] != "key" {
		t.Errorf("comes from %v with %v", d.Headers["x-original-exchange"], d.Headers["x-original-routing-key"])
	}
}

// parkedAgain checks a message that was moved back moves times.
func (r *rig) parkedAgain(t testing.TB, d *amqp.Delivery, moves int) {
	t.Helper()
	counts := append(counting(r.plan.MaxRetries), slices.Repeat([]int{r.plan.MaxRetries}, moves)...)
	list := r.receipts(t, d.MessageId, counts...)
	last := list[len(list)-1].Header
	exchange, key, _ := front(r.plan)
	if last.Get("Amqp-Exchange") != exchange || last.Get("Amqp-Routing-Key") != key ||
		last.Get("Amqp-Last-Attempt") != "true" {
		t.Errorf("after %d moves: Amqp-Exchange %q, Amqp-Routing-Key %q, Amqp-Last-Attempt %q", moves,
			last.Get("Amqp-Exchange"), last.Get("Amqp-Routing-Key"), last.Get("Amqp-Last-Attempt"))
	}
	r.parkedWith(t, d, amqp.Table{
		//nolint:gosec // a few
		"x-final-reason": "max_retries", "x-final-retry-count": int32(r.plan.MaxRetries), "x-final-status-code": int32(409),
	})
}

// movedByShovel is the same with the broker's own tool for it.
func movedByShovel(t *testing.T, plan *topology.Plan) {
	const id = "by-shovel"
	r := begin(t, plan)
	r.app.On(id, failing())
	r.send(t, id)
	r.ends(t, id, 1, "park", "max_retries")
	brokertest.WaitReady(t, r.url, plan.Park.Queue, 1)
	shovel(t, plan.Park.Queue, plan.Queue)
	r.ends(t, id, 2, "park", "max_retries")
	d := brokertest.Get(t, r.url, plan.Park.Queue, patience)
	r.parkedAgain(t, &d, 1)
	r.stopsEmpty(t)
}

// shovel moves what is in one queue now into another, and removes itself then.
func shovel(t *testing.T, from, to string) {
	t.Helper()
	vhost := brokertest.VhostName(t)
	// Without a host the plugin connects inside the node: the broker may not listen where we reach it.
	uri := "amqp:///" + url.PathEscape(vhost)
	definition := must.Get(json.Marshal(map[string]string{
		"src-protocol": "amqp091", "src-uri": uri, "src-queue": from, "src-delete-after": "queue-length",
		"dest-protocol": "amqp091", "dest-uri": uri, "dest-queue": to, "ack-mode": "on-confirm",
	}))(t)
	brokertest.Ctl(t, "set_parameter", "-p", vhost, "shovel", from, string(definition))
}
