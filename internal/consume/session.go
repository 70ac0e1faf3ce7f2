package consume

import (
	"context"
	"errors"
	"fmt"
	"sync"
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

	plan func() *topology.Plan // what settles: the consumer's plan as the broker is found

	outstanding sync.WaitGroup // deliveries received and not ended
	delays      chan struct{}  // slots for messages that are held before a requeue

	lastTag uint64 // of the deliveries so far, and so their number

	admitted bool // the delivery that is offered to the workers has passed admit

	leaving context.Context    // in order: ends when the channel has to be closed
	leave   context.CancelFunc // it makes pump end, too
	dropped bool               // by order.drop; its mutex guards this
	blind   bool               // of pump: a delivery has lost its key, and nothing behind it is handled
	scratch record             // of pump

	batch   []*broker.Delivery // memory of the deliveries that were taken last
	pending []*broker.Delivery // those of them that no worker has taken
}

func newSession(c *Consumer, sub *broker.Subscription, kill func(), plan func() *topology.Plan) *session {
	s := &session{
		c: c, plan: plan, sub: sub, kill: kill, done: sub.Done(),
		settler: newSettler(sub, c.o.Prefetch, c.metrics),
		// At least one, also when the window leaves no room beside the workers.
		delays: make(chan struct{}, max(1, c.o.Prefetch-c.o.Concurrency)),
	}
	s.settler.ordered = c.order != nil
	s.leaving, s.leave = context.WithCancel(context.Background())
	context.AfterFunc(s.leaving, func() { signal(c.woken) })
	c.background.Go(s.settler.run)
	return s
}

// consume takes messages whenever the gate is open, until the consumer stops (errStopping) or the session ends.
func (s *session) consume(ctx context.Context) error {
	for {
		if err := s.awaitOpen(); err != nil {
			return err
		}
		unbind := context.AfterFunc(s.c.interrupt, s.kill)
		s.sub.Timeout = s.plan().ConsumerTimeout(s.c.o.Prefetch / s.c.o.Concurrency)
		consumer, err := s.sub.Consume(ctx, s.c.o.Prefetch)
		unbind()
		if err != nil {
			return fmt.Errorf("consume from %q: %w", s.c.o.Plan.Queue, err)
		}
		s.c.setActive(true)
		why := s.pump(consumer.Deliveries)
		if s.c.order == nil && (errors.Is(why, errPaused) || errors.Is(why, errStopping)) {
			if err := s.cancel(ctx, consumer); err != nil {
				why = err
			}
		}
		s.c.setActive(false)
		if s.c.order != nil || !errors.Is(why, errPaused) {
			consumer.Drop() // the broker delivers again what no worker has taken
			s.freePending()
			if s.c.order != nil {
				s.c.order.drop(s)
			}
			return why
		}
	}
}

func (s *session) freePending() {
	for _, d := range s.pending {
		d.Free()
	}
	clear(s.pending)
	s.pending = nil
}

// awaitOpen waits until the gate is open. The error says why the session need not wait any more.
func (s *session) awaitOpen() error {
	flow := s.c.o.Flow
	for changed := flow.Changed(); !flow.Open(); changed = flow.Changed() {
		select {
		case <-changed:
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.sub.Err()
		}
	}
	select {
	case <-s.c.stopping:
		return errStopping
	default:
		return nil
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

// pump hands deliveries to the workers, each as one becomes free, until the gate is closed (errPaused), the consumer
// stops (errStopping) or the session ends. During the ramp-up it waits until the limit allows one more in flight.
func (s *session) pump(deliveries *broker.Deliveries) error {
	var next delivery // received, and offered to the workers; empty without one
	defer func() {
		if next.Delivery != nil {
			s.releaseUnstarted(next)
		}
	}()
	flow := s.c.o.Flow
	changed := flow.Changed()
	for flow.Open() && s.leaving.Err() == nil {
		if next.Delivery == nil {
			if next = s.next(); next.Delivery != nil && next.Missing > 0 {
				s.c.holdMissing(next)
				next = delivery{}
				continue
			}
		}
		ready, work, freed := deliveries.Ready(), s.c.offered, s.c.freed
		switch { // a nil channel is never ready
		case next.Delivery == nil:
			work, freed = nil, s.c.woken
		case (s.c.limited || flow.Ramping()) && s.c.inflight.Load() >= int64(flow.Limit()):
			ready, work = nil, nil
		case s.c.limited && !s.admit(): // one of the channels below says why
			ready, work, freed = nil, nil, s.c.woken
		default:
			ready, freed = nil, nil
		}
		select {
		case work <- next:
			s.c.inflight.Add(1)
			next, s.admitted = delivery{}, false
		case <-freed:
		case <-ready:
			if ended := s.fetch(deliveries); ended { // the server cancelled the consumer, or the channel is closing
				<-s.done
				return s.sub.Err()
			}
		case <-changed:
			changed = flow.Changed()
		case <-s.c.stopping:
			return errStopping
		case <-s.done:
			return s.sub.Err()
		}
	}
	return errPaused
}

// fetch makes the deliveries that have arrived pending; none is pending before. It reports whether no more will arrive.
// The window relies on delivery tags that count up by one: a broker that sends others loses the session.
func (s *session) fetch(deliveries *broker.Deliveries) (ended bool) {
	s.batch, ended = deliveries.Take(s.batch)
	s.pending = s.batch
	for _, d := range s.batch {
		if s.lastTag++; d.DeliveryTag != s.lastTag {
			s.c.o.Logger.Error("delivery tag out of order", "tag", d.DeliveryTag, "expected",
				s.lastTag)
			s.freePending()
			s.kill()
			return true
		}
	}
	return ended
}

// next takes the next delivery that may be handled; it is empty without one.
func (s *session) next() (d delivery) {
	if s.c.order != nil {
		for _, pending := range s.pending {
			s.c.order.add(s, pending)
		}
		s.pending = nil
		d = s.c.order.take()
	} else if len(s.pending) > 0 {
		d = delivery{s.pending[0], s, nil}
		s.pending[0] = nil
		s.pending = s.pending[1:]
	}
	if d.Delivery != nil {
		s.receive(d.Delivery)
	}
	return d
}

// receive counts a delivery: from here on it is outstanding until end. In order each attempt counts as a delivery.
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

// cancel ends the consumer at the broker and gives back, uncounted, the deliveries that no worker has taken.
func (s *session) cancel(ctx context.Context, consumer *broker.Consumer) error {
	defer context.AfterFunc(s.c.interrupt, s.kill)() // a broker that does not answer must not outlast the grace
	if err := consumer.Stop(ctx); err != nil {
		return fmt.Errorf("cancel the consumer of %q: %w", s.c.o.Plan.Queue, err)
	}
	for ended := false; ; {
		for len(s.pending) > 0 {
			s.releaseUnstarted(s.next())
		}
		if ended {
			return nil
		}
		<-consumer.Ready()
		ended = s.fetch(consumer.Deliveries)
	}
}

// releaseUnstarted requeues a delivery that no worker has taken. The broker may count that against its delivery limit.
// In order the end of the channel returns it.
func (s *session) releaseUnstarted(d delivery) {
	if s.admitted {
		s.admitted = false
		free(s.c.o.Slots)
	}
	r := &record{}
	r.begin(d)
	by := topology.Settlement{}.Released(message.ReasonUndispatched)
	if p := s.plan(); p.RequeueLimit > 0 && d.Missing == 0 { // else the headers need not be read
		by = p.Settlement(r.read(p), by.Verdict)
	}
	s.settle(r, by)
}

// close ends the session's consumer. On a live session it waits until every delivery has ended and is settled; on a
// lost one it leaves the rest to the settler, which counts late settlements as stale.
func (s *session) close() {
	s.c.background.Go(func() {
		s.outstanding.Wait()
		close(s.settler.endings)
	})
	select {
	case <-s.settler.done:
	case <-s.done:
		return
	}
	select {
	case <-time.After(nackGrace):
	case <-s.done:
	}
}
