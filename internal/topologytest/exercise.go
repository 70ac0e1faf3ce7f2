// Package topologytest runs a topology through the whole sidecar: a real broker, the real parts from session to
// settlement, and an app behind a real socket. The checks are the same for every plan, because a topology is data: the
// author of a new one passes it to Exercise, which fails if it loses a message.
//
// It judges no time but lower bounds: a wait may be longer than its tier, never shorter.
package topologytest

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// Exercise takes messages through plan in every way that messages go, and through every trouble that the broker can
// make on the way, as far as takes returns true for the name of the check. Parts that break something have a virtual
// host of their own, so t must not have asked for one before.
func Exercise(t *testing.T, plan *topology.Plan, takes func(check string) bool) {
	t.Helper()
	requireTestable(t, plan)
	t.Run("together", func(t *testing.T) {
		t.Parallel()
		place(t, plan)
		r := share(t, plan)
		t.Run("all", func(t *testing.T) { // returns when all parallel tests in it have
			for name, test := range together(plan) {
				if !takes(name) {
					continue
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					test(t, r)
				})
			}
		})
		r.leavesNothing(t)
	})
	for name, test := range alone(plan) {
		if !takes(name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			place(t, plan)
			test(t, plan)
		})
	}
}

// place gives the test a node that can do what the plan needs.
func place(t *testing.T, plan *topology.Plan) {
	t.Helper()
	if plan.DelaysItself() {
		brokertest.Delaying(t)
	}
}

// together lists what shares one sidecar and one set of queues: each works on messages of its own.
func together(plan *topology.Plan) map[string]func(*testing.T, *shared) {
	tests := map[string]func(*testing.T, *shared){
		"success":             success,
		"every attempt":       everyAttempt,
		"no answer":           noAnswer,
		"straight":            straight,
		"forged history":      forgedHistory,
		"copied history":      copiedHistory,
		"large headers":       largeHeaders,
		"too early":           tooEarly,
		"sender's properties": senderProperties,
	}
	if len(plan.Waits) > 0 {
		tests["retry after"] = retryAfter
	}
	if plan.Park != (topology.Route{}) {
		tests["moved back by hand"] = movedByHand
	}
	if plan.Park != (topology.Route{}) && plan.MaxRetries > 1 {
		tests["moved back before its time"] = movedBeforeItsTime
		tests["taken out of a retry queue"] = movedOutOfWaiting
	}
	return tests
}

// alone lists the tests that need a virtual host of their own.
func alone(plan *topology.Plan) map[string]func(*testing.T, *topology.Plan) {
	tests := map[string]func(*testing.T, *topology.Plan){"crashes": crashes}
	if len(plan.Waits) > 0 && !plan.DelaysItself() {
		tests["retry queue deleted"] = retryQueueDeleted
	}
	if plan.Park != (topology.Route{}) {
		tests["dead-letter queue deleted"] = deadLetterQueueDeleted
		tests["moved back by shovel"] = movedByShovel
	}
	if plan.Park.Exchange != "" ||
		len(plan.Waits) > 0 && plan.Waits[0].By != topology.ByReject && plan.Waits[0].Exchange != "" {
		tests["binding deleted"] = bindingDeleted
	}
	if plan.StampQueue && len(plan.Waits) > 0 && plan.Waits[0].By != topology.ByReject { // a reject stamps nothing
		tests["foreign retries"] = foreignRetries
	}
	return tests
}

// requireTestable refuses a plan that could not show what the tests look for.
func requireTestable(t *testing.T, plan *topology.Plan) {
	t.Helper()
	if err := plan.Validate(); err != nil {
		t.Fatal(err)
	}
	if plan.MaxRetries < len(plan.Waits) {
		t.Fatalf("%d retries do not come by all %d waits", plan.MaxRetries, len(plan.Waits))
	}
	if plan.Tiered && len(plan.Waits) > 0 && !slices.ContainsFunc(plan.Waits[1:],
		func(w topology.WaitPath) bool { return w.Delay >= retryAfterAsked }) {
		t.Fatalf("no tier but the first covers a Retry-After of %v", retryAfterAsked)
	}
	for _, x := range plan.Exchanges {
		if x.Type == "" {
			t.Fatalf("exchange %q is not the plan's own: Exercise declares all of them", x.Name)
		}
	}
}

// shared is the sidecar that most tests of a plan share.
type shared struct {
	*rig
	lot *lot // nil without a dead-letter queue
}

func share(t *testing.T, plan *topology.Plan) *shared {
	t.Helper()
	url := brokertest.URL(t)
	declareTopology(t, url, plan)
	s := &shared{rig: start(t, plan)}
	if plan.Park != (topology.Route{}) {
		s.lot = collect(t, url, plan.Park.Queue)
	}
	return s
}

// leavesNothing: every message has left the plan's queues, each that was parked or discarded exactly as often as a test
// has seen it, and the metrics say the same as the log.
func (r *shared) leavesNothing(t *testing.T) {
	t.Helper()
	r.stop()
	for _, q := range r.plan.Queues {
		brokertest.WaitReady(t, r.url, q.Name, 0)
	}
	if r.lot != nil {
		for _, s := range r.lot.surplus() {
			t.Errorf("parked %s", s)
		}
	}
	for _, reason := range []string{"max_retries", "headers_too_large", "disposition"} {
		outcome := r.lost()
		got := r.metric(t, "sidecar_messages_settled_total", map[string]string{"outcome": outcome, "reason": reason})
		if want := r.log.count(outcome, reason); got != want {
			t.Errorf("the metrics count %d of %s %s, the log %d", got, outcome, reason, want)
		}
	}
}

// lost is the outcome of a message that is not tried again.
func (r *rig) lost() string {
	if r.plan.Park == (topology.Route{}) {
		return "discard"
	}
	return "park"
}

// end waits until the message has left permanently for the n-th time and returns how.
func (r *rig) end(t testing.TB, id string, n int) settled {
	t.Helper()
	brokertest.Eventually(t, patience, id+" ends "+strconv.Itoa(n)+" times",
		func() bool { return len(r.log.finals(id)) >= n })
	return r.log.finals(id)[n-1]
}

// acked fails the test unless the message ends by being taken.
func (r *rig) acked(t testing.TB, id string) {
	t.Helper()
	if s := r.end(t, id, 1); s.Outcome != "ack" {
		t.Errorf("%s ended by %s (%s), want an ack", id, s.Outcome, s.Reason)
	}
}

// givenUp waits for a message to be parked, and returns it as it lies in the dead-letter queue; without such a queue it
// has to be discarded, and there is nothing to return.
func (r *shared) givenUp(t testing.TB, id, reason string) *amqp.Delivery {
	t.Helper()
	s := r.end(t, id, 1)
	if s.Outcome != r.lost() || s.Reason != reason {
		t.Errorf("%s ended by %s (%s), want %s (%s)", id, s.Outcome, s.Reason, r.lost(), reason)
	}
	if r.lot == nil {
		return nil
	}
	d := r.lot.await(t, id, 1)
	return &d
}

// front is where producers publish: the first binding of the service's queue, and what it takes to match it.
func front(p *topology.Plan) (exchange, key string, headers amqp.Table) {
	for _, b := range p.Bindings {
		if b.Queue != p.Queue {
			continue
		}
		headers = amqp.Table{}
		for k, v := range b.Args {
			if k != "x-match" {
				headers[k] = v
			}
		}
		return b.Exchange, strings.NewReplacer("*", "created", "#", "order.created").Replace(b.Key), headers
	}
	return "", p.Queue, nil
}

// named are ids that no other test of the plan uses.
func named(label string, n int) []string {
	var ids []string
	for i := range n {
		ids = append(ids, label+"-"+strconv.Itoa(i))
	}
	return ids
}

func message(id string) amqp.Publishing {
	return amqp.Publishing{MessageId: id, Body: []byte("body of " + id), ContentType: "text/plain",
		DeliveryMode: amqp.Persistent}
}

// send publishes messages the way producers do.
func (r *rig) send(t testing.TB, ids ...string) {
	t.Helper()
	ch := brokertest.Channel(t, r.url)
	exchange, key, headers := front(r.plan)
	for _, id := range ids {
		m := message(id)
		m.Headers = headers
		brokertest.Publish(t, ch, exchange, key, m)
	}
}

// put publishes messages straight into the service's queue.
func (r *rig) put(t testing.TB, messages ...amqp.Publishing) {
	t.Helper()
	ch := brokertest.Channel(t, r.url)
	for _, m := range messages {
		brokertest.Publish(t, ch, "", r.plan.Queue, m)
	}
}

// tier is the shortest time that the message may take from failed attempt n, counted from 0, to the next.
func tier(p *topology.Plan, n int) time.Duration {
	if p.DelaysItself() {
		return p.DelayAfter(n)
	}
	return p.Waits[min(n, len(p.Waits)-1)].Delay
}
