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

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// Exercise takes messages through plan in every way that messages go, as far as takes returns true for the name of the
// check. Parts that break something have a virtual host of their own, so t must not have asked for one before.
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
		"every attempt":       everyAttempt,
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
	if plan.Park != (topology.Route{}) {
		tests["moved back by shovel"] = movedByShovel
	}
	if plan.StampQueue && len(plan.Waits) > 0 && plan.Waits[0].By != topology.ByReject { // a reject stamps nothing
		tests["foreign retries"] = foreignRetries
	}
	return tests
}

// requireTestable refuses a plan that could not show what the tests look for.
func requireTestable(t *testing.T, plan *topology.Plan) {
	t.Helper()
	must.Do(t, plan.Validate())
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
	s := &shared{rig: begin(t, plan)}
	if plan.Park != (topology.Route{}) {
		s.lot = collect(t, s.url, plan.Park.Queue)
	}
	return s
}

// leavesNothing: every message has left the plan's queues, each that was parked exactly as often as a test has seen it.
func (r *shared) leavesNothing(t *testing.T) {
	t.Helper()
	r.stopsEmpty(t)
	if r.lot != nil {
		for _, s := range r.lot.surplus() {
			t.Errorf("parked %s", s)
		}
	}
}

// stopsEmpty stops the sidecar, which leaves no message in the plan's queues.
func (r *rig) stopsEmpty(t testing.TB) {
	t.Helper()
	r.stop()
	for _, q := range r.plan.Queues {
		brokertest.WaitReady(t, r.url, q.Name, 0)
	}
}

// lost is the outcome of a message that is not tried again.
func (r *rig) lost() string {
	if r.plan.Park == (topology.Route{}) {
		return "discard"
	}
	return "park"
}

// ends waits until the message has left permanently for the n-th time, and compares how.
func (r *rig) ends(t testing.TB, id string, n int, outcome, reason string) {
	t.Helper()
	brokertest.Eventually(t, patience, id+" ends "+strconv.Itoa(n)+" times",
		func() bool { return len(r.log.finals(id)) >= n })
	if s := r.log.finals(id)[n-1]; s.Outcome != outcome || s.Reason != reason {
		t.Errorf("%s ended by %s (%s), want %s (%s)", id, s.Outcome, s.Reason, outcome, reason)
	}
}

// acked fails the test unless each message ends by being taken.
func (r *rig) acked(t testing.TB, ids ...string) {
	t.Helper()
	for _, id := range ids {
		r.ends(t, id, 1, "ack", "success")
	}
}

// givenUp waits for a message to be parked, and returns it as it lies in the dead-letter queue; without such a queue it
// has to be discarded, and there is nothing to return.
func (r *shared) givenUp(t testing.TB, id, reason string) *amqp.Delivery {
	t.Helper()
	r.ends(t, id, 1, r.lost(), reason)
	if r.lot == nil {
		return nil
	}
	d := r.lot.await(t, id, 1)
	return &d
}

// receipts compares the counts of retries that the app has received with a message, one for each attempt.
func (r *rig) receipts(t testing.TB, id string, counts ...int) []*apptest.Request {
	t.Helper()
	list := r.app.Seen(id)
	var got []int
	for i, one := range list {
		got = append(got, one.Number("Amqp-Retry-Count"))
		if n := one.Number("Amqp-Delivery-Attempt"); n != got[i]+1 {
			t.Errorf("%s, receipt %d: Amqp-Delivery-Attempt %d beside Amqp-Retry-Count %d", id, i, n, got[i])
		}
	}
	if !slices.Equal(got, counts) {
		t.Errorf("%s was received with Amqp-Retry-Count %v, want %v", id, got, counts)
	}
	return list
}

// counting are the numbers from 0 to the last one.
func counting(last int) (all []int) {
	for n := range last + 1 {
		all = append(all, n)
	}
	return all
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

// tier is the shortest time that the message may take from a failed attempt, counted from 0, to the next.
func (r *rig) tier(failed int) time.Duration {
	if r.plan.DelaysItself() {
		return r.plan.DelayAfter(failed)
	}
	return r.plan.Waits[min(failed, len(r.plan.Waits)-1)].Delay
}
