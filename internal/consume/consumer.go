// Package consume takes messages from one queue and settles them. It holds the line from delivery to settlement: the
// POST, the verdict and its translation into the topology are made by other packages and carried out here. It does not
// POST, does not judge and does not read configuration.
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
	"golang.org/x/time/rate"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/flow"
	"sidecar/internal/memory"
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
	Publish(ctx context.Context, p *message.Publication) error
}

// Options of a Consumer.
type Options struct {
	Plan   *topology.Plan
	Policy retry.Policy

	// Unroutable is called with the error of a publication that found no queue: a missing binding shows in no other way.
	// It must not block.
	Unroutable func(exchange, key string, err error)

	// RequestCheck is called before each reject of a message that the broker dead-letters; may be nil. It returns nil if
	// the topology was checked a moment ago. Otherwise it asks for a check, and returns a channel that is closed at the
	// end of it. It must not block.
	RequestCheck func() <-chan struct{}

	// Undelayed is called when a message was delivered again at once that the queue should have delayed. It must not
	// block.
	Undelayed func()

	MissingHold time.Duration // delay before requeueing a message whose body could not be kept; 30 s when zero
	// first pause after a failed park or retry publish, then doubled up to 10 s; 500 ms when zero
	PublishPause time.Duration

	Memory *budget.Account // for the deliveries, see broker.Subscription; nil: that of the connection

	Rates []*rate.Limiter // each lets a message through before it is POSTed, and batches of its burst at most
	Slots []chan struct{} // each holds a value for each POST of the consumers that share it

	OrderBy string // see message.Message.Key: by key the messages are handled in order. Plan has InPlace then. "": in none

	Attempt time.Duration // the longest one: in order none begins that could outlast a delivery's time

	Concurrency  int // POSTs at once, over all sessions
	Prefetch     int // unacked messages per session, at least Concurrency
	LongPrefetch int // Prefetch at first and while attempts take over a second; 0: always Prefetch, as it must be in order
	Dispatcher   Dispatcher
	Batch        Batch
	Publisher    Publisher
	Flow         *flow.Control
	Tracing      *telemetry.Tracing
	Logger       *slog.Logger
	Registerer   prometheus.Registerer // must add the label queue: the metrics here have none
}

// Consumer serves one broker session after the other with one pool of workers. The pool outlives sessions: an attempt
// that is under way when its session is lost still occupies its worker, so that the app never handles more than
// Concurrency messages at once.
type Consumer struct {
	o       Options
	metrics *metrics
	memory  *memory.Memory
	order   *order // nil: the messages are handled in no order

	offered chan offer    // unbuffered: what no worker has taken is still its session's
	freed   chan struct{} // a worker finished; capacity 1
	woken   chan struct{} // another delivery or batch may be handled, or with another prefetch; capacity 1; nil: never
	limited bool          // by rates or slots

	pace   pace
	counts counts
	active active
	large  large

	overflow    *rate.Limiter // of requeues that found no slot to be held in
	replies     replies
	refusal     refusal
	unpublished unpublished

	stop       stop
	sessions   sync.WaitGroup // being served
	background sync.WaitGroup // settlers, held messages, publications
	workers    sync.WaitGroup
	started    int // workers; of the goroutine of Serve
}

// counts are read by others at any time.
type counts struct {
	posts    atomic.Int64 // that are under way
	inflight atomic.Int64 // messages being POSTed
	delayed  atomic.Int64 // held before a requeue
	received atomic.Int64
	returned atomic.Int64 // deliveries requeued before a POST
	cut      atomic.Int64 // messages whose attempt or publish a stop interrupted
}

// active is what is known of the broker's consumer.
type active struct {
	registered atomic.Pointer[broker.Consumer]
	lasting    atomic.Pointer[broker.Consumer] // registered, until it is being cancelled
	begun      atomic.Bool                     // see Begun
}

// stop is how the consumer stops.
type stop struct {
	mu        sync.Mutex
	stopped   bool
	stopping  chan struct{}   // closed: take no more
	interrupt context.Context // ends: stop what runs
	cancel    context.CancelCauseFunc
}

// interruptBound is how long an interrupted attempt may take to notice.
const interruptBound = 5 * time.Second

// Causes of an interruption.
var (
	errStopping = errors.New("stopping")
	ErrGrace    = errors.New("the shutdown grace expired")
	ErrNow      = errors.New("a second signal")
)

// New returns a Consumer without workers: pump starts them when there is work.
func New(o Options) *Consumer {
	o.MissingHold = cmp.Or(o.MissingHold, missingHold)
	o.PublishPause = cmp.Or(o.PublishPause, publishPauseMin)
	interrupt, cancel := context.WithCancelCause(context.Background())
	c := &Consumer{
		o: o, offered: make(chan offer), freed: make(chan struct{}, 1), limited: len(o.Rates) > 0 || len(o.Slots) > 0,
		large:    large{turn: make(chan struct{}, 1)},
		stop:     stop{stopping: make(chan struct{}), interrupt: interrupt, cancel: cancel},
		replies:  replies{running: make(chan struct{}, maxReplying), all: make(chan struct{}, maxReplies)},
		overflow: rate.NewLimiter(rate.Every(retry.MinRequeueDelay/time.Duration(max(1, o.Concurrency))), 1),
	}
	c.pace.average.Store(int64(time.Second))
	c.pace.long.Store(o.LongPrefetch > 0)
	if o.OrderBy != "" || o.Batch.Size > 1 || o.LongPrefetch > 0 {
		c.woken = make(chan struct{}, 1)
	}
	if o.OrderBy != "" {
		c.order = newOrder(c)
	}
	for _, limit := range o.Rates { // what a rate does not let through at once cannot be POSTed at once
		c.o.Batch.Size = min(c.o.Batch.Size, limit.Burst())
	}
	var delayAfter func(int) time.Duration
	if o.Plan.DelaysItself() {
		delayAfter = o.Plan.DelayAfter
	}
	c.memory = memory.New(delayAfter, o.Undelayed)
	c.metrics = newMetrics(o.Registerer, c)
	return c
}

// Serve consumes on a channel of s until Stop (nil) or until the channel or the session is lost (its error). Each
// message is settled by what plan returns: the consumer's own as the broker is found. One call at a time.
func (c *Consumer) Serve(ctx context.Context, s *broker.Session, plan func() *topology.Plan) error {
	c.stop.mu.Lock()
	if c.stop.stopped {
		c.stop.mu.Unlock()
		return nil
	}
	c.sessions.Add(1)
	c.stop.mu.Unlock()
	defer c.sessions.Done()
	defer c.active.begun.Store(false)

	for {
		unbind := context.AfterFunc(c.stop.interrupt, s.Kill) // a broker that does not answer must not outlast the grace
		sub, err := s.Subscribe(ctx, c.o.Plan.Queue)
		unbind()
		if err != nil {
			c.refused(ctx, err)
			return err
		}
		sub.Share = c.o.Memory
		served := newSession(c, sub, s.Kill, plan)
		if err = served.consume(ctx); !errors.Is(err, errPaused) {
			c.active.begun.Store(false) // before close, which may wait for the app
		}
		served.close()
		if errors.Is(err, errStopping) && c.order == nil {
			return nil // the connection is closed next, and with it the channel
		}
		if sub.Close() != nil { // otherwise what it has not settled returns to the queue
			served.lose()
		}
		switch {
		case errors.Is(err, errStopping):
			return nil
		case !errors.Is(err, errPaused):
			return err
		}
	}
}

// Stop takes no more messages. It returns at once; Drain waits.
func (c *Consumer) Stop() {
	c.stop.mu.Lock()
	defer c.stop.mu.Unlock()
	if !c.stop.stopped {
		c.stop.stopped = true
		close(c.stop.stopping)
	}
}

// stops reports whether Stop was called.
func (c *Consumer) stops() bool {
	select {
	case <-c.stop.stopping:
		return true
	default:
		return false
	}
}

// Drained is the result of a drain.
type Drained struct {
	// Interrupted counts the messages that were requeued uncounted because their publish failed during the drain, or
	// because their attempt or publish was still running when the grace expired.
	Interrupted int64

	Returned int64 // deliveries requeued before a POST
}

// Drain stops, waits until every message in flight is settled, interrupts the attempts that are left when ctx ends, and
// returns when no message is in flight. A drain dead-letters, parks and counts nothing.
func (c *Consumer) Drain(ctx context.Context) Drained {
	c.Stop()
	before, stuck := c.counts.returned.Load(), int64(0)
	idle := make(chan struct{})
	go func() {
		c.sessions.Wait()
		close(c.offered)
		c.workers.Wait()    // also attempts of a session that is gone: the app should be allowed to finish them
		c.background.Wait() // also publications of a session that is gone: an interruption ends them
		close(idle)
	}()
	select {
	case <-idle:
	case <-ctx.Done():
		c.stop.cancel(context.Cause(ctx))
		select {
		case <-idle:
		case <-time.After(interruptBound):
			// An attempt ignores the interruption; its message goes back to the queue with the connection.
			stuck = c.Inflight()
			c.o.Logger.Error("drain stuck", "inflight", stuck)
		}
	}
	c.stop.cancel(nil)
	return Drained{Interrupted: c.counts.cut.Load() + stuck, Returned: c.counts.returned.Load() - before}
}
