// Package consume takes messages from one queue and settles them. It holds the line from delivery to settlement:
// what a message is, what the app said, what that means and how it leaves are decided elsewhere and obeyed here. It
// never POSTs, never judges and never reads configuration.
package consume

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/crash"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// Dispatcher POSTs one message and reports what the app said. Cancelling ctx interrupts the attempt.
type Dispatcher interface {
	Dispatch(ctx context.Context, m *message.Message) message.Outcome
}

// Publisher publishes with confirmation: nil means the broker has the message and routed it.
type Publisher interface {
	Publish(ctx context.Context, p *broker.Publication) error
}

// Options of a Consumer.
type Options struct {
	Plan   *topology.Plan
	Policy retry.Policy

	// Unproven says that nobody has made sure that the retry exchange leads to the wait queue: bindings cannot be seen
	// over AMQP, and a reject into a missing one loses the message without a trace. The first retry of each session
	// then leaves by a mandatory publish, which would come back; once one has got through, rejects are trusted until
	// ProofLasts is over, when the next retry has to prove it again.
	Unproven   bool
	ProofLasts time.Duration // topology.DefaultEvery when zero: declared bindings are declared again as often

	// Unroutable is told when a publication found no queue: bindings show in no other way. It must not block.
	Unroutable func(exchange, key string)

	// Crashes counts the crashes that messages have been through, with Concurrency workers; nil when nobody wants to
	// know. AppGone looks, after a broken connection, whether nobody listens there any more; needed with Crashes.
	Crashes *crash.Guard
	AppGone func(ctx context.Context) bool

	PanicHold    time.Duration // delay before the requeue of a message that made the sidecar panic; 5 s when zero
	MissingHold  time.Duration // delay before the requeue of a message whose body could not be kept; 30 s when zero
	PublishPause time.Duration // first pause after a failed park or retry publish, then doubled up to 10 s; 500 ms when zero

	Concurrency int // messages POSTed at once, over all sessions
	Prefetch    int // unacked messages per session, at least Concurrency
	Dispatcher  Dispatcher
	Publisher   Publisher
	Flow        *flow.Control
	Tracing     *telemetry.Tracing
	Logger      *slog.Logger
	Registerer  prometheus.Registerer
}

// Consumer serves one broker session after the other with one pool of workers. The pool outlives sessions: answers
// that are under way when a session is lost still occupy their worker, so that the app never sees more than
// Concurrency messages at once.
type Consumer struct {
	o       Options
	metrics *metrics

	work  chan delivery // unbuffered: a delivery is either with the broker's client or with a worker
	freed chan struct{} // a worker finished; capacity 1

	inflight  atomic.Int64 // being POSTed
	delayed   atomic.Int64 // sleeping before a requeue
	received  atomic.Int64
	active    atomic.Bool               // a consumer is registered
	oversized atomic.Pointer[oversized] // the last message whose body could not be kept
	returned  atomic.Int64              // deliveries given back before their turn
	cut       atomic.Int64              // attempts interrupted by a stop

	stopping  chan struct{}   // closed: take no more
	interrupt context.Context // ends: stop what runs
	cancel    context.CancelCauseFunc

	telling  chan struct{} // slots for verdicts that are being told
	untold   chan struct{} // slots for those and for all that wait
	overflow pace          // requeues that found no sleeper's slot

	failures telemetry.Throttle // lines about publishes that failed
	unkept   telemetry.Throttle // lines about messages whose body could not be kept

	stuckMu  sync.Mutex
	stuckNow int

	mu         sync.Mutex
	stopped    bool
	runs       sync.WaitGroup // sessions being served
	background sync.WaitGroup // settlers, sleepers, publications
	workers    sync.WaitGroup
}

// interruptBound is how long an interrupted attempt may take to notice.
const interruptBound = 5 * time.Second

// Causes of an interruption.
var (
	errStopping = errors.New("stopping")
	ErrGrace    = errors.New("the shutdown grace expired")
	ErrNow      = errors.New("told to stop now")
)

// New returns a Consumer with its workers running.
func New(o Options) *Consumer {
	o.ProofLasts = cmp.Or(o.ProofLasts, topology.DefaultEvery)
	o.PanicHold = cmp.Or(o.PanicHold, panicHold)
	o.MissingHold = cmp.Or(o.MissingHold, missingHold)
	o.PublishPause = cmp.Or(o.PublishPause, publishPauseMin)
	c := &Consumer{
		o: o, work: make(chan delivery), freed: make(chan struct{}, 1), stopping: make(chan struct{}),
		telling:  make(chan struct{}, maxTelling),
		untold:   make(chan struct{}, maxUntold),
		overflow: pace{interval: retry.MinRequeueDelay / time.Duration(max(1, o.Concurrency))},
	}
	c.interrupt, c.cancel = context.WithCancelCause(context.Background())
	c.metrics = newMetrics(o.Registerer, o.Plan.Queue,
		func() float64 { return float64(c.Inflight()) }, func() float64 { return float64(c.Delayed()) })
	for n := range o.Concurrency {
		w := &worker{c: c}
		if o.Crashes != nil {
			w.watch = o.Crashes.Watch(n)
		}
		c.workers.Go(w.run)
	}
	return c
}

// Serve consumes on s until the consumer is told to stop (nil) or the session is lost (why). One call at a time.
func (c *Consumer) Serve(ctx context.Context, s *broker.Session) error {
	c.mu.Lock()
	if c.stopped {
		c.mu.Unlock()
		return nil
	}
	c.runs.Add(1)
	c.mu.Unlock()
	defer c.runs.Done()

	var sub *broker.Subscription
	err := c.interruptible(s.Kill, func() (err error) {
		sub, err = s.Subscribe(ctx, c.o.Plan.Queue, c.o.Prefetch)
		return err
	})
	if err != nil {
		return err
	}
	r := newRun(c, sub, s.Kill)
	defer r.close()
	return r.consume(ctx)
}

// interruptible runs a call to the broker that an interruption ends by killing the session: a broker that does not
// answer must not outlast the grace.
func (c *Consumer) interruptible(kill func(), call func() error) error {
	defer context.AfterFunc(c.interrupt, kill)()
	return call()
}

// Stop takes no more messages. It returns at once; Drain waits.
func (c *Consumer) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped {
		c.stopped = true
		close(c.stopping)
	}
}

// Drained says how a drain went.
type Drained struct {
	Interrupted int64 // attempts cut short because the grace expired; their messages went back uncounted
	Returned    int64 // deliveries given back before their turn
}

// Drain stops, waits until everything in hand is settled, interrupts what is left when ctx ends, and returns when
// nothing is in hand any more. Nothing is dead-lettered, parked or counted by it.
func (c *Consumer) Drain(ctx context.Context) Drained {
	c.Stop()
	before := c.returned.Load()
	idle := make(chan struct{})
	go func() {
		c.runs.Wait()
		c.waitIdle()
		close(c.work)
		c.workers.Wait()
		c.background.Wait() // also publications of a session that is gone: an interruption ends them
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		c.cancel(context.Cause(ctx))
		t := time.NewTimer(interruptBound)
		defer t.Stop()
		select {
		case <-idle:
		case <-t.C: // something does not let go; whatever it holds goes back to the queue with the connection
			c.o.Logger.Error("drain stuck", "inflight", c.Inflight())
			return Drained{Interrupted: c.cut.Load() + c.Inflight(), Returned: c.returned.Load() - before}
		}
	}
	c.cancel(nil)
	return Drained{Interrupted: c.cut.Load(), Returned: c.returned.Load() - before}
}

// waitIdle waits for the attempts of sessions that are already gone: their answers change nothing, but the app
// should be allowed to finish what it began.
func (c *Consumer) waitIdle() {
	for c.inflight.Load() > 0 {
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-c.freed:
		case <-t.C:
		}
		t.Stop()
	}
}

// Inflight is how many messages are being POSTed.
func (c *Consumer) Inflight() int64 { return max(0, c.inflight.Load()) }

// Delayed is how many messages sleep before a requeue.
func (c *Consumer) Delayed() int64 { return c.delayed.Load() }

// Received is how many deliveries there have been.
func (c *Consumer) Received() int64 { return c.received.Load() }

// Active reports whether a consumer is registered with the broker.
func (c *Consumer) Active() bool { return c.active.Load() }

func (c *Consumer) setActive(active bool) {
	c.active.Store(active)
	if active {
		c.metrics.active.Set(1)
	} else {
		c.metrics.active.Set(0)
	}
}
