package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// nackGrace is how long a channel stays open after the last settlement of a stop: nacks sent right before
// channel.close are undone by quorum queues of 3.10 and 4.0.
const nackGrace = 200 * time.Millisecond

// errPaused ends a stretch of consumption because the gate was shut.
var errPaused = errors.New("paused")

// run is the consumer on one session. A delivery belongs to its run: it is settled through it or not at all.
type run struct {
	c       *Consumer
	sub     *broker.Subscription
	kill    func()          // ends the session at once
	done    <-chan struct{} // closed when nothing can be settled any more
	settler *settler

	plan     atomic.Pointer[topology.Plan] // how verdicts leave, as far as it is proven on this session
	unproven *topology.Plan                // the plan while it is not; nil when somebody else vouches for it

	outstanding sync.WaitGroup // deliveries received and not finished
	sleepers    chan struct{}  // slots for messages that sleep locally

	received uint64 // deliveries, and so the tag of the last one

	batch   []*broker.Delivery // memory of what was taken from the session last
	pending []*broker.Delivery // the part of it that has not had its turn

	mu       sync.Mutex
	active   bool     // the broker may deliver: what is given back now would return at once
	deferred []uint64 // releases that wait until it may not
}

// delivery is one message in hand, with the run it belongs to.
type delivery struct {
	*broker.Delivery
	run *run
}

func newRun(c *Consumer, sub *broker.Subscription, kill func()) *run {
	r := &run{
		c: c, sub: sub, kill: kill, done: sub.Done(), settler: newSettler(sub, c.o.Prefetch, c.metrics),
		// At least one may sleep, also when the window leaves no room beside the workers.
		sleepers: make(chan struct{}, max(1, c.o.Prefetch-c.o.Concurrency)),
	}
	r.plan.Store(c.o.Plan)
	if c.o.Unproven {
		r.unproven = c.o.Plan.WithoutReject()
		r.plan.Store(r.unproven)
	}
	c.background.Go(r.settler.run)
	return r
}

// prove is told that a retry got through by a publish: for a while a reject will too.
func (r *run) prove() {
	if r.unproven == nil || r.c.o.Plan.Unverified || !r.plan.CompareAndSwap(r.unproven, r.c.o.Plan) {
		return
	}
	time.AfterFunc(r.c.o.ProofLasts, func() { r.plan.Store(r.unproven) })
}

// consume takes messages whenever the gate is open, until the consumer stops (nil) or the session ends (why).
func (r *run) consume(ctx context.Context) error {
	for {
		if err := r.awaitOpen(ctx); err != nil {
			return r.stopped(err)
		}
		var deliveries *broker.Deliveries
		err := r.c.interruptible(r.kill, func() (err error) {
			deliveries, err = r.sub.Start(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("consume from %q: %w", r.c.o.Plan.Queue, err)
		}
		r.setActive(true)
		err = r.pump(ctx, deliveries)
		if !errors.Is(err, errPaused) && !errors.Is(err, errStopping) {
			r.setActive(false)
			r.drop(deliveries)
			return err
		}
		if err := r.cancel(ctx, deliveries); err != nil {
			r.drop(deliveries)
			return err
		}
		if errors.Is(err, errStopping) {
			return nil
		}
	}
}

// drop frees what was received and had no turn: the session has ended, and the broker delivers it again.
func (r *run) drop(deliveries *broker.Deliveries) {
	deliveries.Drop()
	r.freePending()
}

func (r *run) freePending() {
	for _, d := range r.pending {
		d.Free()
	}
	clear(r.pending)
	r.pending = nil
}

// stopped turns a stop into the nil of a clean end.
func (r *run) stopped(err error) error {
	if errors.Is(err, errStopping) {
		return nil
	}
	return err
}

func (r *run) awaitOpen(ctx context.Context) error {
	for {
		changed := r.c.o.Flow.Changed()
		if r.c.o.Flow.Open() {
			return r.stopOr(nil)
		}
		select {
		case <-changed:
		case <-r.c.stopping:
			return errStopping
		case <-r.done:
			return r.lost(ctx)
		}
	}
}

func (r *run) stopOr(err error) error {
	select {
	case <-r.c.stopping:
		return errStopping
	default:
		return err
	}
}

// gone reports whether the run's session has ended.
func (r *run) gone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// lost names why the subscription ended.
func (r *run) lost(ctx context.Context) error {
	if err := r.sub.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// pump hands deliveries to the workers until the gate is shut (errPaused), the consumer stops (errStopping) or the
// session ends.
func (r *run) pump(ctx context.Context, deliveries *broker.Deliveries) error {
	for {
		changed := r.c.o.Flow.Changed()
		if !r.c.o.Flow.Open() {
			return errPaused
		}
		r.flushDeferred() // the gate was shut and opened again before the consumer was cancelled
		if err := r.pumpUntil(ctx, deliveries, changed); err != nil {
			return err
		}
	}
}

// pumpUntil is the hot loop between two changes of the gate.
func (r *run) pumpUntil(ctx context.Context, deliveries *broker.Deliveries, changed <-chan struct{}) error {
	for {
		if err := r.offerPending(ctx, changed); err != nil {
			return err
		}
		select {
		case <-deliveries.Ready():
			if ended := r.take(deliveries); ended { // the server cancelled the consumer, or the channel is closing
				select {
				case <-r.done:
				case <-ctx.Done():
				}
				return r.lost(ctx)
			}
		case <-changed:
			return nil
		case <-r.c.stopping:
			return errStopping
		case <-r.done:
			return r.lost(ctx)
		}
	}
}

// take makes all that has arrived pending, of which there is none before. It reports whether no more will come. The window
// relies on delivery tags that count up by one: a broker that sends others loses the session.
func (r *run) take(deliveries *broker.Deliveries) (ended bool) {
	r.batch, ended = deliveries.Take(r.batch)
	r.pending = r.batch
	for _, d := range r.batch {
		if r.received++; d.DeliveryTag != r.received {
			r.c.o.Logger.Error("delivery tag out of order", "queue", r.c.o.Plan.Queue, "tag", d.DeliveryTag, "expected", r.received)
			r.freePending()
			r.kill()
			return true
		}
	}
	return ended
}

// next takes the next pending delivery into the books.
func (r *run) next() *broker.Delivery {
	d := r.pending[0]
	r.pending[0] = nil
	r.pending = r.pending[1:]
	r.receive(d)
	return d
}

// offerPending hands what is pending to the workers, each as one becomes free.
func (r *run) offerPending(ctx context.Context, changed <-chan struct{}) error {
	for len(r.pending) > 0 {
		d := r.next()
		if err := r.offer(ctx, delivery{d, r}, changed); err != nil {
			r.undispatched(d)
			return err
		}
	}
	return nil
}

// receive takes a delivery into the books: from here on it is outstanding until finish.
func (r *run) receive(d *broker.Delivery) {
	r.outstanding.Add(1)
	r.c.received.Add(1)
	redelivered := 0
	if d.Redelivered {
		redelivered = 1
	}
	r.c.metrics.received[redelivered].Inc()
	if !d.Timestamp.IsZero() {
		r.c.metrics.age.Observe(max(0, time.Since(d.Timestamp).Seconds()))
	}
}

// offer waits for a free worker, and while ramping up for the limit to allow one more in flight. changed is from
// before the gate was last seen open.
func (r *run) offer(ctx context.Context, d delivery, changed <-chan struct{}) error {
	for {
		if !r.c.o.Flow.Open() {
			return errPaused
		}
		work, freed := r.c.work, chan struct{}(nil)
		if r.c.o.Flow.Ramping() && r.c.inflight.Load() >= int64(r.c.o.Flow.Limit()) {
			work, freed = nil, r.c.freed // a nil channel is never ready: wait for one to finish first
		}
		select {
		case work <- d:
			r.c.inflight.Add(1)
			return nil
		case <-freed:
		case <-changed:
			changed = r.c.o.Flow.Changed()
		case <-r.c.stopping:
			return errStopping
		case <-r.done:
			return r.lost(ctx)
		}
	}
}

// cancel ends the consumer on the broker's side and gives back, uncounted, what had not had its turn.
func (r *run) cancel(ctx context.Context, deliveries *broker.Deliveries) error {
	defer context.AfterFunc(r.c.interrupt, r.kill)() // a broker that does not answer must not outlast the grace
	if err := r.sub.Stop(ctx); err != nil {
		r.setActive(false)
		return fmt.Errorf("cancel the consumer of %q: %w", r.c.o.Plan.Queue, err)
	}
	for ended := false; ; {
		for len(r.pending) > 0 {
			r.undispatched(r.next())
		}
		if ended {
			break
		}
		<-deliveries.Ready()
		ended = r.take(deliveries)
	}
	r.setActive(false)
	r.flushDeferred()
	return nil
}

// undispatched gives a delivery back that had not had its turn.
func (r *run) undispatched(d *broker.Delivery) {
	r.c.returned.Add(1)
	r.finish(event{d.DeliveryTag, message.Release, message.ReasonUndispatched, finalRequeue})
	d.Free()
}

// finish hands a delivery's fate to the settler. Every delivery is finished exactly once.
func (r *run) finish(e event) {
	r.settler.events <- e
	r.outstanding.Done()
}

// finishWith writes the record and hands on what its settlement says. In this order: a requeued message can be back
// and recorded again before this goroutine runs on.
func (r *run) finishWith(tag uint64, rec *record) {
	s := &rec.s
	rec.span.Settle(finalNames[s.Final])
	rec.span.SettleEnd(nil)
	r.c.record(rec)
	if rec.reply != "" {
		r.c.tell(rec)
	}
	rec.suspicion.Done(s.Final == topology.FinalAck)
	rec.finished = true
	rec.free()
	r.finish(event{tag, s.Verdict.Action, s.Verdict.Reason, finals[s.Final]})
}

// release gives a delivery back because the app is away. While the consumer is still registered the broker would
// send it straight back, so it waits for the cancel that the shut gate brings.
func (r *run) release(tag uint64) {
	r.mu.Lock()
	if r.active {
		r.deferred = append(r.deferred, tag)
		r.mu.Unlock()
		if r.c.o.Flow.Open() { // shut and opened again meanwhile: no cancel may come
			r.flushDeferred()
		}
		return
	}
	r.mu.Unlock()
	r.finish(event{tag, message.Release, message.ReasonAppDown, finalRequeue})
}

func (r *run) flushDeferred() {
	r.mu.Lock()
	tags := r.deferred
	r.deferred = nil
	r.mu.Unlock()
	for _, tag := range tags {
		r.finish(event{tag, message.Release, message.ReasonAppDown, finalRequeue})
	}
}

func (r *run) setActive(active bool) {
	r.mu.Lock()
	r.active = active
	r.mu.Unlock()
	r.c.setActive(active)
}

// close ends the run. On a live session it waits until everything in hand is finished and settled; on a dead one it
// leaves the rest to the settler, which counts what arrives late as stale.
func (r *run) close() {
	r.flushDeferred()
	finished := make(chan struct{})
	r.c.background.Go(func() {
		r.outstanding.Wait()
		close(r.settler.events)
		<-r.settler.done
		close(finished)
	})
	select {
	case <-finished:
	case <-r.done:
		return
	}
	t := time.NewTimer(nackGrace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.done:
	}
}
