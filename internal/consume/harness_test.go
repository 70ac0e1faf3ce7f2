package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/depth"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// soon only ends a test that hangs.
const soon = 3 * time.Minute

// dispatcher takes the place of the HTTP client: what the app answers is the test's to say.
type dispatcher func(ctx context.Context, m *message.Message) message.Outcome

func (d dispatcher) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	return d(ctx, m)
}

// eachAlone answers every message of a batch by itself.
type eachAlone struct{ Dispatcher }

func (eachAlone) Route(*message.Message) (route int, url string) { return 0, "" }

func (d eachAlone) DispatchBatch(ctx context.Context, ms []*message.Message, _ message.TraceContext) (
	whole message.Outcome, each []message.Outcome,
) {
	for _, m := range ms {
		each = append(each, d.Dispatch(ctx, m))
	}
	return answer(200), each
}

func answer(status int) message.Outcome {
	return message.Outcome{Status: status, RetryAfter: -1, At: time.Now()}
}

// always answers every message the same.
func always(status int) dispatcher {
	return func(context.Context, *message.Message) message.Outcome { return answer(status) }
}

// inAnHour answers every message the same and asks for an hour's delay.
func inAnHour(status int) dispatcher {
	return func(context.Context, *message.Message) message.Outcome {
		o := answer(status)
		o.RetryAfter = time.Hour
		return o
	}
}

// answers answers the n-th attempt of each message, which it counts in s, with the n-th status, and later ones with a
// 200.
func (s *seen) answers(statuses ...int) dispatcher {
	return func(_ context.Context, m *message.Message) message.Outcome {
		if n := s.Add(m.MessageID); n <= len(statuses) {
			return answer(statuses[n-1])
		}
		return answer(200)
	}
}

// rig is a Consumer on a real broker, through a link that can be cut.
type rig struct {
	*Consumer
	t     testing.TB
	url   string // straight to the broker, as conn and ch are
	conn  *amqp.Connection
	ch    *amqp.Channel
	proxy *brokertest.Proxy
	plan  *topology.Plan
	flow  *flow.Control
	log   *apptest.Log

	memory *budget.Account // of the deliveries

	ended chan error // Supervise's result

	declared   sync.Once    // publishKeyed has seen the queue
	sessions   atomic.Int64 // begun
	unroutable atomic.Int64 // times the consumer asked for a check of the topology
	undelayed  atomic.Int64 // times it reported that the queue delays nothing
}

type settings struct {
	concurrency, prefetch int
	longPrefetch          int
	maxRetries            int
	publisher             func(Publisher) Publisher
	probe                 func(context.Context) error
	change                func(*topology.Plan)
	opens                 bool // the gate, although the app has not been probed
	memory                int64
	order                 string // Options.OrderBy
	queueType             string
	native                bool // the queue delays retries itself
	retryDelay            time.Duration
	rates                 []*rate.Limiter
	quiet                 bool          // only warnings are logged
	stderr                io.Writer     // nil: rig.log
	linger                chan struct{} // until it is closed the session stays behind the end of Serve
	slots                 []chan struct{}
	batch                 Batch // its Dispatcher is the one that start gets
	spool                 *broker.Spool
	missingHold           time.Duration
	backoff               time.Duration
	pause                 time.Duration // between two tries of a publish
	requestCheck          func() <-chan struct{}
	current               func() *topology.Plan // what settles; nil: the plan that is declared
}

// start declares a fanout topology of its own and consumes from it.
func start(t testing.TB, d Dispatcher, s settings) *rig {
	t.Helper()
	if s.concurrency == 0 {
		s.concurrency, s.prefetch = 4, 8
	}
	if s.maxRetries == 0 {
		s.maxRetries = 10
	}
	if s.probe == nil {
		s.probe = func(context.Context) error { return nil }
	}
	preset := ""
	if s.native {
		brokertest.Delaying(t)
		preset = topology.PresetNative
	}
	url := brokertest.URL(t)
	plan := must.Get(topology.Build(topology.Options{
		Preset: preset, Service: "demo-orders", MaxRetries: &s.maxRetries, QueueType: s.queueType, SingleActive: s.order != "",
		RetryDelay: cmp.Or(s.retryDelay, 100*time.Millisecond),
	}))(t)
	plan.InPlace = s.order != ""
	if s.change != nil {
		s.change(plan)
	}
	r := &rig{t: t, url: url, proxy: brokertest.NewProxy(t, url), plan: plan, log: &apptest.Log{}, ended: make(chan error, 1)}
	r.conn, r.ch = brokertest.Conn(t, url), brokertest.Channel(t, url)
	r.run(d, s)
	return r
}

// replica is another consumer of the same queue, with a link of its own.
func (r *rig) replica(d Dispatcher, s settings) *rig {
	r.t.Helper()
	other := &rig{t: r.t, url: r.url, proxy: brokertest.NewProxy(r.t, r.url), plan: r.plan, log: &apptest.Log{}, ended: make(chan error, 1), conn: r.conn, ch: r.ch}
	s.concurrency, s.prefetch, s.probe = cmp.Or(s.concurrency, 4), cmp.Or(s.prefetch, 8), func(context.Context) error { return nil }
	other.run(d, s)
	return other
}

// run begins to consume.
func (r *rig) run(d Dispatcher, s settings) {
	t, url, plan, linger := r.t, r.url, r.plan, s.linger
	t.Helper()
	current := s.current
	if current == nil {
		current = func() *topology.Plan { return plan }
	}
	level := "debug"
	if s.quiet {
		level = "warn"
	}
	if s.stderr == nil {
		s.stderr = r.log
	}
	registry, log := prometheus.NewRegistry(), telemetry.NewLogger(s.stderr, level, "json")
	memory := budget.New(cmp.Or(s.memory, 64<<20)).Account(budget.Deliveries)
	r.memory = memory
	dial := func(name string) *broker.Dialer {
		return broker.NewDialer(broker.Options{
			URLs: func() ([]string, error) { return []string{r.proxy.URL(t, url)}, nil }, Name: name, Registerer: registry,
			Memory: memory, Backoff: s.backoff, Spool: s.spool, MemoryPatience: 200 * time.Millisecond,
		})
	}
	r.flow = flow.New(flow.Options{
		Concurrency: s.concurrency, CountRefused: s.opens, Probe: s.probe, Interval: 50 * time.Millisecond,
		Refused: func(err error) bool { return errors.Is(err, errRefused) }, Logger: log, Registerer: registry,
	})
	real := broker.NewPublisher(dial("publish"))
	var publisher Publisher = real
	if s.publisher != nil {
		publisher = s.publisher(real)
	}
	if s.batch.Size > 0 {
		var ok bool
		if s.batch.Dispatcher, ok = d.(BatchDispatcher); !ok {
			s.batch.Dispatcher = eachAlone{d}
		}
	}
	policy := retry.Policy{RequeueMin: 300 * time.Millisecond, RequeueMax: 400 * time.Millisecond, PanicHold: 20 * time.Millisecond}
	r.Consumer = New(Options{
		MissingHold: cmp.Or(s.missingHold, 50*time.Millisecond), PublishPause: cmp.Or(s.pause, 50*time.Millisecond),
		Unroutable: func(_, _ string, _ error) { r.unroutable.Add(1) }, Undelayed: func() { r.undelayed.Add(1) },
		RequestCheck: s.requestCheck, Plan: plan, Policy: policy,
		OrderBy: s.order, Rates: s.rates, Slots: s.slots, Batch: s.batch,
		Concurrency: s.concurrency, Prefetch: s.prefetch, LongPrefetch: s.longPrefetch, Dispatcher: d, Publisher: publisher, Flow: r.flow,
		Logger: log, Registerer: registry,
	})
	consumer := r.Consumer // drain takes it out of the rig
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = r.flow.Run(ctx) })
	running.Go(func() { _ = real.Run(ctx) })
	running.Go(func() {
		r.ended <- broker.Supervise(ctx, dial("consume"), func(ctx context.Context, s *broker.Session) error {
			r.sessions.Add(1)
			if report, err := declare.Ensure(ctx, s, plan, topology.ModeDeclare); ctx.Err() == nil && (err != nil || len(report.Findings) > 0) {
				t.Errorf("declare: %v %v", report.Findings, err)
			}
			err := consumer.Serve(ctx, s, current)
			if linger != nil {
				<-linger
			}
			return err
		})
	})
	t.Cleanup(func() {
		r.drain(0)
		cancel()
		running.Wait()
		// A delivery may be half received when the connection ends. The goroutine that reads drops it, a moment later.
		defer func() {
			if t.Failed() {
				t.Logf("log:\n%s", r.log.String())
			}
		}()
		brokertest.Eventually(t, soon, "no bytes counted as held", func() bool { return memory.Held() == 0 })
	})
}

var errRefused = errors.New("connection refused")

// cut ends the session, and waits for the next one.
func (r *rig) cut() {
	r.t.Helper()
	before := r.sessions.Load()
	r.proxy.Cut()
	r.eventually("the next session", func() bool { return r.sessions.Load() > before && r.Active() })
}

// drain drains once, also when the test has done it already.
func (r *rig) drain(grace time.Duration) Drained {
	if r.Consumer == nil {
		return Drained{}
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), grace, ErrGrace)
	defer cancel()
	c := r.Consumer
	r.Consumer = nil
	return c.Drain(ctx)
}

// publish puts messages with the given bodies (also their ids) straight into the service's queue.
func (r *rig) publish(bodies ...string) {
	r.t.Helper()
	var all []amqp.Publishing
	for _, b := range bodies {
		all = append(all, amqp.Publishing{MessageId: b, Body: []byte(b), DeliveryMode: 2, Timestamp: time.Now()})
	}
	r.send(all...)
}

// send puts messages straight into the service's queue.
func (r *rig) send(all ...amqp.Publishing) {
	r.t.Helper()
	r.eventuallyDeclared()
	var confirms []*amqp.DeferredConfirmation
	for _, m := range all {
		confirms = append(confirms, must.Get(r.ch.PublishWithDeferredConfirm("", r.plan.Queue, true, false, m))(r.t))
	}
	for i, confirm := range confirms {
		if !confirm.Wait() {
			r.confirmed(all[i])
		}
	}
}

// confirmed publishes a message until the broker has it: a quorum queue that was just declared may refuse the first one.
func (r *rig) confirmed(m amqp.Publishing) {
	r.t.Helper()
	r.eventually("a confirm", func() bool {
		confirm, err := r.ch.PublishWithDeferredConfirm("", r.plan.Queue, true, false, m)
		return err == nil && confirm.Wait()
	})
}

func (r *rig) eventuallyDeclared() {
	r.t.Helper()
	r.eventually("the queue is declared", func() bool {
		ch, err := r.conn.Channel()
		if err != nil {
			return false
		}
		defer func() { _ = ch.Close() }()
		_, err = ch.QueueDeclarePassive(r.plan.Queue, true, false, false, false, nil)
		return err == nil
	})
}

// holds waits until the queue, which exists, has n messages that no consumer holds.
func (r *rig) holds(queue string, n int) {
	r.t.Helper()
	r.eventually("the wanted number of ready messages in "+queue, func() bool {
		q, err := depth.Of(r.ch, queue)
		return err == nil && q.Messages == n
	})
}

// parked takes one message out of the dead-letter queue.
func (r *rig) parked() (d amqp.Delivery) {
	r.t.Helper()
	r.eventually("a parked message", func() (ok bool) {
		var err error
		d, ok, err = r.ch.Get(r.dlq(), true)
		return ok && err == nil
	})
	return d
}

// acked waits for n messages that the app took.
func (r *rig) acked(n int) {
	r.t.Helper()
	r.counted(n, message.Ack, message.ReasonSuccess)
}

// counted waits for n settlements. One of a message that was published again is counted when that is confirmed, and
// this may be after the end of the published one.
func (r *rig) counted(n int, a message.Action, reason message.Reason) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("%d counted: %v (%v)", n, a, reason), func() bool { return r.count(a, reason) == n })
}

func (r *rig) count(a message.Action, reason message.Reason) int {
	return int(testutil.ToFloat64(r.metrics().settled[a][reason]))
}

func (r *rig) metrics() *metrics { return r.Consumer.metrics }

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	brokertest.Eventually(r.t, soon, what, ok)
}

// heldFor reports whether that is the only reason of the gate.
func (r *rig) heldFor(reason flow.Reason) bool {
	h := r.flow.Holds()
	return len(h) == 1 && h[0].Reason == reason
}

func (r *rig) dlq() string { return r.plan.Park.Queue }

// seen counts attempts by message id.
type seen struct{ apptest.Tally }
