package topologytest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
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
		s := r.end(t, id, n)
		if s.Outcome != "park" || s.Reason != "max_retries" {
			t.Errorf("move %d ended by %s (%s)", n-1, s.Outcome, s.Reason)
		}
		d := r.lot.await(t, id, n)
		r.parkedAgain(t, &d, r.app.Seen(id), n-1)
		again.Headers = d.Headers
	}
}

// movedBeforeItsTime: a message that was parked with retries left has the rest of them when it is moved back.
func movedBeforeItsTime(t *testing.T, r *shared) {
	const id = "before-its-time"
	r.app.On(id, failing(), status(http.StatusConflict, "Amqp-Disposition: park"), failing())
	r.send(t, id)
	first := r.givenUp(t, id, "disposition")
	again := message(id)
	again.Headers = first.Headers
	r.put(t, again)
	if s := r.end(t, id, 2); s.Outcome != "park" || s.Reason != "max_retries" {
		t.Errorf("ended by %s (%s)", s.Outcome, s.Reason)
	}
	d := r.lot.await(t, id, 2)
	if d.Headers["x-final-retry-count"] != int32(r.plan.MaxRetries) { //nolint:gosec // a few
		t.Errorf("x-final-retry-count is %v", d.Headers["x-final-retry-count"])
	}
	var counts, want []int
	for _, one := range r.app.Seen(id) {
		counts = append(counts, one.Number("Amqp-Retry-Count"))
	}
	for n := range r.plan.MaxRetries + 1 {
		want = append(want, n)
	}
	want = slices.Insert(want, 1, 1) // the attempt that parked, and the first one after the move
	if !slices.Equal(counts, want) {
		t.Errorf("Amqp-Retry-Count %v, want %v", counts, want)
	}
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
	var counts []int
	for _, one := range r.app.Seen(id) {
		counts = append(counts, one.Number("Amqp-Retry-Count"))
	}
	if !slices.Equal(counts, []int{retries, retries + 1}) {
		t.Errorf("Amqp-Retry-Count %v, want %d and one more", counts, retries)
	}
	if d.Headers["x-original-exchange"] != "first" || d.Headers["x-original-routing-key"] != "key" {
		t.Errorf("comes from %v with %v", d.Headers["x-original-exchange"], d.Headers["x-original-routing-key"])
	}
}

// parkedAgain checks a message that was moved back moves times.
func (r *rig) parkedAgain(t testing.TB, d *amqp.Delivery, list []*apptest.Request, moves int) {
	t.Helper()
	if n := r.plan.MaxRetries + 1 + moves; len(list) != n {
		t.Fatalf("%d attempts after %d moves, want %d", len(list), moves, n)
	}
	last := list[len(list)-1]
	exchange, key, _ := front(r.plan)
	if last.Header.Get("Amqp-Exchange") != exchange || last.Header.Get("Amqp-Routing-Key") != key {
		t.Errorf("after %d moves: Amqp-Exchange %q, Amqp-Routing-Key %q, want %q and %q", moves,
			last.Header.Get("Amqp-Exchange"), last.Header.Get("Amqp-Routing-Key"), exchange, key)
	}
	if last.Number("Amqp-Retry-Count") != r.plan.MaxRetries || last.Header.Get("Amqp-Last-Attempt") != "true" {
		t.Errorf("after %d moves: Amqp-Retry-Count %q, Amqp-Last-Attempt %q", moves, last.Header.Get("Amqp-Retry-Count"),
			last.Header.Get("Amqp-Last-Attempt"))
	}
	r.parkedWith(t, d, amqp.Table{
		//nolint:gosec // a few
		"x-final-reason": "max_retries", "x-final-retry-count": int32(r.plan.MaxRetries), "x-final-status-code": int32(409),
	})
}

// movedByShovel is the same with the broker's own tool for it.
func movedByShovel(t *testing.T, plan *topology.Plan) {
	const id = "by-shovel"
	broker := brokertest.URL(t)
	declareTopology(t, broker, plan)
	r := start(t, plan)
	r.app.On(id, failing())
	r.send(t, id)
	r.end(t, id, 1)
	brokertest.WaitReady(t, broker, plan.Park.Queue, 1)
	shovel(t, broker, plan.Park.Queue, plan.Queue)
	r.await(t, id, plan.MaxRetries+2)
	if s := r.end(t, id, 2); s.Outcome != "park" || s.Reason != "max_retries" {
		t.Errorf("ended by %s (%s)", s.Outcome, s.Reason)
	}
	d := brokertest.Get(t, broker, plan.Park.Queue, patience)
	r.parkedAgain(t, &d, r.app.Seen(id), 1)
	r.stop()
	for _, q := range plan.Queues {
		brokertest.WaitReady(t, broker, q.Name, 0)
	}
}

// shovel moves what is in one queue now into another, and removes itself then.
func shovel(t *testing.T, broker, from, to string) {
	t.Helper()
	vhost, path := "/", ""
	if u, err := url.Parse(broker); err != nil {
		t.Fatal("the broker's URL cannot be parsed")
	} else if len(u.Path) > 1 {
		vhost, path = u.Path[1:], "/"+url.PathEscape(u.Path[1:])
	}
	// Without a host the plugin connects inside the node: the broker may not listen where we reach it.
	definition, err := json.Marshal(map[string]string{
		"src-protocol": "amqp091", "src-uri": "amqp://" + path, "src-queue": from, "src-delete-after": "queue-length",
		"dest-protocol": "amqp091", "dest-uri": "amqp://" + path, "dest-queue": to, "ack-mode": "on-confirm",
	})
	if err != nil {
		t.Fatal(err)
	}
	brokertest.Ctl(t, "set_parameter", "-p", vhost, "shovel", from, string(definition))
}
