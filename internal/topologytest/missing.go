package topologytest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// broken starts a sidecar, has it hold one message at the app, keeps it from repairing anything and breaks something.
// What it returns opens the gate before the app's answer, and lets the sidecar repair.
func broken(t *testing.T, plan *topology.Plan, id string, script []apptest.Reply,
	breakIt func(*amqp.Channel) error) (r *rig, fail, repair func()) {
	t.Helper()
	r = begin(t, plan)
	gate := make(chan struct{})
	r.app.On(id, append([]apptest.Reply{apptest.Held(gate, script[0])}, script[1:]...)...)
	r.send(t, id)
	r.await(t, id, 1)
	r.repairing.Lock()
	repair = sync.OnceFunc(r.repairing.Unlock)
	t.Cleanup(repair)
	must.Do(t, breakIt(brokertest.Channel(t, r.url)))
	return r, sync.OnceFunc(func() { close(gate) }), repair
}

func deleted(queues ...string) func(*amqp.Channel) error {
	return func(ch *amqp.Channel) error {
		for _, q := range queues {
			if _, err := ch.QueueDelete(q, false, false, false); err != nil {
				return err
			}
		}
		return nil
	}
}

// retryQueueDeleted: a retry that is published is returned when the queue is missing, and kept until there is a queue
// again. A reject to a missing queue is lost; but the sidecar sees that, consumes nothing and declares it again, and
// then retries arrive again.
func retryQueueDeleted(t *testing.T, plan *topology.Plan) {
	const id = "retried"
	var queues []string
	for _, w := range plan.Waits {
		queues = append(queues, w.Queue)
	}
	r, fail, repair := broken(t, plan, id, []apptest.Reply{failing(), status(http.StatusOK)}, deleted(queues...))
	if plan.Waits[0].By == topology.ByReject {
		r.pauses(t)
	} else {
		fail()
		r.keeps(t, id)
		r.publishing.Stall(brokertest.Up) // what reaches a quorum queue while RabbitMQ 3.10 declares it never expires
	}
	repair()
	r.resumes(t, queues...)
	r.publishing.Restore(t)
	fail()
	r.acked(t, id)
	r.receipts(t, id, 0, 1)
	r.works(t)
}

// keeps waits until a publication has returned to the sidecar, and makes sure that its message is still unsettled.
func (r *rig) keeps(t *testing.T, id string) {
	t.Helper()
	brokertest.Eventually(t, patience, "a publication is returned to the sidecar",
		func() bool { return r.unroutable.Load() > 0 })
	if n := len(r.app.Seen(id)); n != 1 || len(r.log.finals(id)) != 0 {
		t.Errorf("%d receipts, ended %v: want it unsettled", n, r.log.finals(id))
	}
}

// bindingDeleted: AMQP cannot show bindings, so a missing one is noticed only when a message returns. It stays the
// sidecar's until the binding has been made again. (Rejects without the binding are lost, which is why they are not
// here.)
func bindingDeleted(t *testing.T, plan *topology.Plan) {
	const id = "unbound"
	route, script := plan.Park, []apptest.Reply{parking()}
	if route.Exchange == "" {
		route, script = plan.Waits[0].Route, []apptest.Reply{failing(), status(http.StatusOK)}
	}
	r, fail, repair := broken(t, plan, id, script, func(ch *amqp.Channel) error {
		for _, b := range plan.Bindings {
			if b.Exchange == route.Exchange && b.Queue == route.Queue {
				return ch.QueueUnbind(b.Queue, b.Key, b.Exchange, b.Args)
			}
		}
		return errors.New("no such binding")
	})
	fail()
	r.keeps(t, id)
	repair()
	if route == plan.Park {
		r.ends(t, id, 1, "park", "disposition")
		brokertest.Get(t, r.url, plan.Park.Queue, patience)
	} else {
		r.acked(t, id)
	}
	r.works(t)
}

// deadLetterQueueDeleted: what cannot be parked stays the sidecar's, unacked, until it can.
func deadLetterQueueDeleted(t *testing.T, plan *topology.Plan) {
	const id = "homeless"
	r, fail, repair := broken(t, plan, id, []apptest.Reply{parking()}, deleted(plan.Park.Queue))
	fail()
	brokertest.Eventually(t, patience, "a park fails", func() bool {
		return r.unroutable.Load() > 0 && brokertest.Metric(t, r.registry, "sidecar_park_failures_total") > 0
	})
	r.pauses(t)
	if finals := r.log.finals(id); len(finals) != 0 {
		t.Errorf("ended %v without a dead-letter queue", finals)
	}
	repair()
	r.resumes(t, plan.Park.Queue)
	d := brokertest.Get(t, r.url, plan.Park.Queue, patience)
	if d.MessageId != id || d.Headers["x-final-reason"] != "disposition" {
		t.Errorf("%q is parked with %v", d.MessageId, d.Headers)
	}
	r.works(t)
}

// pauses waits until the sidecar has seen that something is missing and takes nothing any more.
func (r *rig) pauses(t *testing.T) {
	t.Helper()
	brokertest.Eventually(t, patience, "the sidecar takes nothing", func() bool {
		return r.missing.Load() > 0 && r.brokenTopology() && !r.consumer.Active()
	})
}

// resumes waits until the queues are there again, declared by the sidecar alone, and it takes messages.
func (r *rig) resumes(t *testing.T, queues ...string) {
	t.Helper()
	brokertest.Eventually(t, patience, "the queues are there again", func() bool {
		return !slices.ContainsFunc(queues, func(q string) bool { return brokertest.Ready(t, r.url, q) < 0 })
	})
	brokertest.Eventually(t, patience, "the sidecar takes messages", func() bool {
		r.repairing.Lock() // a queue can be seen before its declaration has ended
		defer r.repairing.Unlock()
		return !r.brokenTopology() && r.consumer.Active()
	})
}

func (r *rig) brokenTopology() bool {
	return slices.ContainsFunc(r.flow.Holds(), func(h flow.Hold) bool { return h.Reason == flow.Topology })
}

// works sends one more message all the way, and leaves nothing.
func (r *rig) works(t *testing.T) {
	t.Helper()
	const id = "works"
	if len(r.plan.Waits) > 0 {
		r.app.On(id, failing(), status(http.StatusOK))
	}
	r.send(t, id)
	r.acked(t, id)
	r.stopsEmpty(t)
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
