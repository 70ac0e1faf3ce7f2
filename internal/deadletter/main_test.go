package deadletter

import (
	"fmt"
	"os"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/testkit/depth"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, goleak.Cleanup(os.Exit)) }

// rig is a topology of its own in a real broker, and the queue that is read.
type rig struct {
	*Queue
	t    testing.TB
	url  string
	plan *topology.Plan

	memory *budget.Account
}

// newRig declares the topology that change makes of a fanout one.
func newRig(t testing.TB, change func(*topology.Options)) *rig {
	t.Helper()
	o := topology.Options{Preset: topology.PresetFanout, Service: "svc"}
	if change != nil {
		change(&o)
	}
	plan := must.Get(topology.Build(o))(t)
	r := &rig{t: t, url: brokertest.URL(t), plan: plan, memory: budget.New(256 << 20).Account(budget.DeadLetters)}
	t.Cleanup(func() {
		if held := r.memory.Held(); held != 0 {
			t.Errorf("%d bytes of messages are counted as held after the end", held)
		}
	})
	s := must.Get(broker.NewDialer(r.broker()).Dial(t.Context()))(t)
	defer s.Close()
	report, err := declare.Ensure(t.Context(), s, plan, topology.ModeDeclare)
	if err != nil || len(report.Findings) > 0 {
		t.Fatal(report.Findings, err)
	}
	r.Queue = r.another()
	return r
}

// another is what another process would make of the same configuration.
func (r *rig) another() *Queue {
	r.t.Helper()
	return New(Options{Broker: r.broker(), By: "operator"}, Owner{Plan: r.plan})[0]
}

// as is another process whose user has these rights and no others.
func (r *rig) as(configure, write, read string) *Queue {
	r.t.Helper()
	name := brokertest.User(r.t, "secret")
	brokertest.Ctl(r.t, "set_permissions", name, configure, write, read)
	theirs := *r
	theirs.url = brokertest.URLAs(r.t, name, "secret")
	return theirs.another()
}

// through is another process whose connections go through a proxy.
func (r *rig) through() (*Queue, *brokertest.Proxy) {
	r.t.Helper()
	proxy := brokertest.NewProxy(r.t, r.url)
	theirs := *r
	theirs.url = proxy.URL(r.t, r.url)
	return theirs.another(), proxy
}

func (r *rig) broker() broker.Options {
	url := r.url // as it is now
	return broker.Options{URLs: func() ([]string, error) { return []string{url}, nil }, Timeout: 30 * time.Second, Name: "test " + r.t.Name(), Memory: r.memory}
}

func quorum(o *topology.Options) { o.QueueType = "quorum" }

// redeclare gives the dead-letter queue other arguments.
func (r *rig) redeclare(args amqp.Table) {
	r.t.Helper()
	ch := brokertest.Channel(r.t, r.url)
	must.Get(ch.QueueDelete(r.name, false, false, false))(r.t)
	must.Get(ch.QueueDeclare(r.name, true, false, false, false, args))(r.t)
	for _, b := range r.plan.Bindings {
		if b.Queue == r.name {
			must.Do(r.t, ch.QueueBind(b.Queue, b.Key, b.Exchange, false, nil))
		}
	}
}

// parked is a message as the sidecar parks it.
func (r *rig) parked(id string, more amqp.Table) amqp.Publishing {
	h := amqp.Table{
		"x-original-queue": r.plan.Queue, "x-original-exchange": "orders", "x-original-routing-key": "order.created",
		"x-final-reason": "max_retries", "x-final-status-code": int32(503), "x-final-retry-count": int32(10),
		"x-final-at": "2026-11-20T10:00:00.000Z",
	}
	for k, v := range more {
		if h[k] = v; v == nil {
			delete(h, k)
		}
	}
	return amqp.Publishing{MessageId: id, ContentType: "application/json", Headers: h, Body: fmt.Appendf(nil, `{"id":%q}`, id)}
}

// park puts messages into the dead-letter queue, in their order.
func (r *rig) park(list ...amqp.Publishing) {
	r.t.Helper()
	ch := brokertest.Channel(r.t, r.url)
	confirms := make([]*amqp.DeferredConfirmation, len(list))
	for i, m := range list {
		m.DeliveryMode = amqp.Persistent
		var err error
		if confirms[i], err = ch.PublishWithDeferredConfirm("", r.name, true, false, m); err != nil {
			r.t.Fatal(err)
		}
	}
	for _, c := range confirms {
		if !c.Wait() {
			r.t.Fatal("not confirmed")
		}
	}
	brokertest.Eventually(r.t, time.Minute, "all messages in the queue", func() bool {
		return brokertest.Ready(r.t, r.url, r.name) >= len(list)
	})
}

// numbered are n parked messages, "m0001" …
func (r *rig) numbered(n int) []amqp.Publishing {
	list := make([]amqp.Publishing, n)
	for i := range list {
		list[i] = r.parked(fmt.Sprintf("m%04d", i+1), nil)
	}
	return list
}

// drain takes everything out of a queue, in its order.
func (r *rig) drain(queue string) (all []amqp.Delivery) {
	r.t.Helper()
	ch := brokertest.Channel(r.t, r.url)
	state := must.Get(depth.Of(ch, queue))(r.t)
	if state.Messages > 20 { // all at once: one question for each takes its time
		come := must.Get(ch.Consume(queue, "drain", true, false, false, false, nil))(r.t)
		for range state.Messages {
			all = append(all, <-come)
		}
		must.Do(r.t, ch.Cancel("drain", false))
		for d := range come {
			all = append(all, d)
		}
	}
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return all
		}
		all = append(all, d)
	}
}

func ids(list []amqp.Delivery) []string {
	all := make([]string, len(list))
	for i := range list {
		all[i] = list[i].MessageId
	}
	return all
}

func (r *rig) browse(f Filter, s Scan) ([]View, Progress) {
	r.t.Helper()
	var views []View
	sum, err := r.Browse(r.t.Context(), f, s, nil, func(m *Message) error {
		views = append(views, m.View())
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return views, sum
}

func filter(t testing.TB, conditions ...string) Filter {
	t.Helper()
	var f Filter
	for i := 0; i < len(conditions); i += 2 {
		must.Do(t, f.Set(conditions[i], conditions[i+1]))
	}
	return f
}
