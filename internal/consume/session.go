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

// errPaused ends a stretch of consumption because the gate was closed.
var errPaused = errors.New("paused")

// session is the consumer on one session of the broker. A delivery is settled on the session it came from or not at
// all.
type session struct {
	c       *Consumer
	sub     *broker.Subscription
	kill    func()          // ends the session at once
	done    <-chan struct{} // closed when nothing can be settled any more
	settler *settler

	plan     atomic.Pointer[topology.Plan] // its routes are the ones that have been proven to work on this session
	unproven *topology.Plan                // the plan before that; nil when the topology has been declared

	outstanding sync.WaitGroup // deliveries received and not ended
	delays      chan struct{}  // slots for messages that are held before a requeue

	received uint64 // deliveries, and so the tag of the last one

	batch   []*broker.Delivery // memory of the deliveries that were taken last
	pending []*broker.Delivery // those of them that no worker has taken

	mu        sync.Mutex
	active    bool     // the broker may deliver: a message that is requeued would be delivered again at once
	postponed []ending // releases that wait until it may not
}

func newSession(c *Consumer, sub *broker.Subscription, kill func()) *session {
	s := &session{
		c: c, sub: sub, kill: kill, done: sub.Done(), settler: newSettler(sub, c.o.Prefetch, c.metrics),
		// At least one, also when the window leaves no room beside the workers.
		delays: make(chan struct{}, max(1, c.o.Prefetch-c.o.Concurrency)),
	}
	s.plan.Store(c.o.Plan)
	if c.o.Unproven {
		s.unproven = c.o.Plan.WithoutReject()
		s.plan.Store(s.unproven)
	}
	c.background.Go(s.settler.run)
	return s
}

// markProven records that a retry was published and routed: until ProofLasts is over, retries may use basic.reject.
func (s *session) markProven() {
	if s.unproven == nil || s.c.o.Plan.Unverified || !s.plan.CompareAndSwap(s.unproven, s.c.o.Plan) {
		return
	}
	time.AfterFunc(s.c.o.ProofLasts, func() { s.plan.Store(s.unproven) })
}

// consume takes messages whenever the gate is open, until the consumer stops (nil) or the session ends (its error).
func (s *session) consume(ctx context.Context) error {
	for {
		if err := s.awaitOpen(ctx); err != nil {
			return s.stopped(err)
		}
		var deliveries *broker.Deliveries
		err := s.c.interruptible(s.kill, func() (err error) {
			deliveries, err = s.sub.Start(ctx)
			return err
		})
		if err != nil {
			return fmt.Errorf("consume from %q: %w", s.c.o.Plan.Queue, err)
		}
		s.setActive(true)
		err = s.pump(ctx, deliveries)
		if !errors.Is(err, errPaused) && !errors.Is(err, errStopping) {
			s.setActive(false)
			s.drop(deliveries)
			return err
		}
		if err := s.cancel(ctx, deliveries); err != nil {
			s.drop(deliveries)
			return err
		}
		if errors.Is(err, errStopping) {
			return nil
		}
	}
}

// drop frees the deliveries that no worker has taken: the session has ended, and the broker delivers them again.
func (s *session) drop(deliveries *broker.Deliveries) {
	deliveries.Drop()
	s.freePending()
}

func (s *session) freePending() {
	for _, d := range s.pending {
		d.Free()
	}
	clear(s.pending)
	s.pending = nil
}

// stopped turns a stop into the nil of a clean end.
func (s *session) stopped(err error) error {
	if errors.Is(err, errStopping) {
		return nil
	}
	return err
}

func (s *session) awaitOpen(ctx context.Context) error {
	for {
		changed := s.c.o.Flow.Changed()
		if s.c.o.Flow.Open() {
			return s.stopOr(nil)
		}
		select {
		case <-changed:
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.lost(ctx)
		}
	}
}

func (s *session) stopOr(err error) error {
	select {
	case <-s.c.stopping:
		return errStopping
	default:
		return err
	}
}

// gone reports whether the session has ended.
func (s *session) gone() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// lost returns why the subscription ended.
func (s *session) lost(ctx context.Context) error {
	if err := s.sub.Err(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// pump hands deliveries to the workers until the gate is closed (errPaused), the consumer stops (errStopping) or the
// session ends.
func (s *session) pump(ctx context.Context, deliveries *broker.Deliveries) error {
	for {
		changed := s.c.o.Flow.Changed()
		if !s.c.o.Flow.Open() {
			return errPaused
		}
		s.handPostponed() // the gate was closed and opened again before the consumer was cancelled
		if err := s.pumpUntil(ctx, deliveries, changed); err != nil {
			return err
		}
	}
}

// pumpUntil is the hot loop between two changes of the gate.
func (s *session) pumpUntil(ctx context.Context, deliveries *broker.Deliveries, changed <-chan struct{}) error {
	for {
		if err := s.offerPending(ctx, changed); err != nil {
			return err
		}
		select {
		case <-deliveries.Ready():
			if ended := s.fetch(deliveries); ended { // the server cancelled the consumer, or the channel is closing
				select {
				case <-s.done:
				case <-ctx.Done():
				}
				return s.lost(ctx)
			}
		case <-changed:
			return nil
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.lost(ctx)
		}
	}
}

// fetch makes the deliveries that have arrived pending; none is pending before. It reports whether no more will arrive.
// The window relies on delivery tags that count up by one: a broker that sends others loses the session.
func (s *session) fetch(deliveries *broker.Deliveries) (ended bool) {
	s.batch, ended = deliveries.Take(s.batch)
	s.pending = s.batch
	for _, d := range s.batch {
		if s.received++; d.DeliveryTag != s.received {
			s.c.o.Logger.Error("delivery tag out of order", "queue", s.c.o.Plan.Queue, "tag", d.DeliveryTag, "expected",
				s.received)
			s.freePending()
			s.kill()
			return true
		}
	}
	return ended
}

// next takes the next pending delivery.
func (s *session) next() *broker.Delivery {
	d := s.pending[0]
	s.pending[0] = nil
	s.pending = s.pending[1:]
	s.receive(d)
	return d
}

// offerPending hands the pending deliveries to the workers, each as one becomes free.
func (s *session) offerPending(ctx context.Context, changed <-chan struct{}) error {
	for len(s.pending) > 0 {
		d := s.next()
		if d.Missing > 0 {
			s.c.holdMissing(delivery{d, s})
			continue
		}
		if err := s.offer(ctx, delivery{d, s}, changed); err != nil {
			s.giveBack(d)
			return err
		}
	}
	return nil
}

// receive counts a delivery: from here on it is outstanding until end.
func (s *session) receive(d *broker.Delivery) {
	s.outstanding.Add(1)
	s.c.received.Add(1)
	redelivered := 0
	if d.Redelivered {
		redelivered = 1
	}
	s.c.metrics.received[redelivered].Inc()
	if !d.Timestamp.IsZero() {
		s.c.metrics.age.Observe(max(0, time.Since(d.Timestamp).Seconds()))
	}
}

// offer waits for a free worker and, during the ramp-up, until the limit allows one more message in flight. changed was
// read before the gate was last found open.
func (s *session) offer(ctx context.Context, d delivery, changed <-chan struct{}) error {
	for {
		if !s.c.o.Flow.Open() {
			return errPaused
		}
		work, freed := s.c.work, chan struct{}(nil)
		if s.c.o.Flow.Ramping() && s.c.inflight.Load() >= int64(s.c.o.Flow.Limit()) {
			work, freed = nil, s.c.freed // a nil channel is never ready: wait until a worker is done
		}
		select {
		case work <- d:
			s.c.inflight.Add(1)
			return nil
		case <-freed:
		case <-changed:
			changed = s.c.o.Flow.Changed()
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.lost(ctx)
		}
	}
}

// cancel ends the consumer at the broker and gives back, uncounted, the deliveries that no worker has taken.
func (s *session) cancel(ctx context.Context, deliveries *broker.Deliveries) error {
	defer context.AfterFunc(s.c.interrupt, s.kill)() // a broker that does not answer must not outlast the grace
	if err := s.sub.Stop(ctx); err != nil {
		s.setActive(false)
		return fmt.Errorf("cancel the consumer of %q: %w", s.c.o.Plan.Queue, err)
	}
	for ended := false; ; {
		for len(s.pending) > 0 {
			s.giveBack(s.next())
		}
		if ended {
			break
		}
		<-deliveries.Ready()
		ended = s.fetch(deliveries)
	}
	s.setActive(false)
	s.handPostponed()
	return nil
}

// giveBack requeues a delivery that no worker has taken.
func (s *session) giveBack(d *broker.Delivery) {
	r := &record{}
	r.begin(delivery{d, s})
	r.release(message.ReasonUndispatched)
	s.end(r)
}

// close ends the session's consumer. On a live session it waits until every delivery has ended and is settled; on a
// lost one it leaves the rest to the settler, which counts late settlements as stale.
func (s *session) close() {
	s.handPostponed()
	finished := make(chan struct{})
	s.c.background.Go(func() {
		s.outstanding.Wait()
		close(s.settler.endings)
		<-s.settler.done
		close(finished)
	})
	select {
	case <-finished:
	case <-s.done:
		return
	}
	t := time.NewTimer(nackGrace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.done:
	}
}
