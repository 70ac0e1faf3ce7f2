package consume

import (
	"cmp"
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

	long bool                  // as Consumer.long when the broker's consumer began
	plan func() *topology.Plan // what settles: the consumer's plan as the broker is found

	outstanding sync.WaitGroup // deliveries received and not ended
	delays      chan struct{}  // slots for messages that are held before a requeue

	lastTag uint64 // of the deliveries so far, and so their number

	offered  offer // of pump, to the workers; empty without one
	admitted bool  // it has passed admit

	collector *collector  // of pump; nil: each message is POSTed alone
	overdue   *time.Timer // wakes pump when a batch has to go out
	backMu    sync.Mutex
	back      []*batch // for pump, from workers
	pumping   bool     // pump will take what is in back

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
		settler: newSettler(sub, c.o.Prefetch, c.metrics, &c.remembered),
		// At least one, also when the window leaves no room beside the workers.
		delays: make(chan struct{}, max(1, cmp.Or(c.o.LongPrefetch, c.o.Prefetch)-c.atOnce())),
	}
	if c.o.Batch.Size > 1 {
		s.collector = newCollector(c.o.Batch)
		s.overdue = time.AfterFunc(time.Hour, func() { signal(c.woken) })
	}
	s.settler.ordered, s.settler.patience = c.order != nil, c.patience()
	s.leaving, s.leave = context.WithCancel(context.Background())
	context.AfterFunc(s.leaving, func() { signal(c.woken) })
	c.background.Go(s.settler.run)
	return s
}

// consume takes messages whenever the gate is open, until the consumer stops (errStopping) or the session ends.
func (s *session) consume(ctx context.Context) error {
	for {
		s.c.untried()
		if err := s.awaitOpen(); err != nil {
			return err
		}
		unbind := context.AfterFunc(s.c.interrupt, s.kill)
		// As if every message went alone: those of a batch do if it failed.
		registered := s.settler.inFlight.register(int(s.lastTag)) // #nosec G115 -- of one session
		s.sub.Timeout = s.plan().ConsumerTimeout(s.c.o.Prefetch / s.c.o.Concurrency)
		s.long = s.c.long.Load()
		consumer, err := s.sub.Consume(ctx, s.c.Prefetch())
		unbind()
		if err != nil {
			s.c.refused(ctx, err)
			return fmt.Errorf("consume from %q: %w", s.c.o.Plan.Queue, err)
		}
		registered()
		s.c.register(consumer)
		why := s.pump(consumer.Deliveries)
		s.c.lasting.Store(nil)
		if s.c.order == nil && (errors.Is(why, errPaused) || errors.Is(why, errStopping)) {
			if err := s.cancel(ctx, consumer); err != nil {
				why = err
			}
		}
		s.c.register(nil)
		if s.c.order != nil || !errors.Is(why, errPaused) {
			s.leftover()
			s.freePending() // the broker delivers again what no worker has taken
			s.pending, _ = consumer.Take(s.batch)
			s.lastTag += uint64(len(s.pending))
			s.freePending()
			consumer.Drop()
			if s.c.order != nil {
				s.c.order.drop(s)
			}
			return why
		}
	}
}

func (s *session) freePending() {
	for _, d := range s.pending {
		s.untaken(delivery{d, s, nil})
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
	if s.c.stops() {
		return errStopping
	}
	return nil
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

// cancel ends the consumer at the broker and gives back, uncounted, the deliveries that no worker has taken.
func (s *session) cancel(ctx context.Context, consumer *broker.Consumer) error {
	defer context.AfterFunc(s.c.interrupt, s.kill)() // a broker that does not answer must not outlast the grace
	if err := consumer.Stop(ctx); err != nil {
		return fmt.Errorf("cancel the consumer of %q: %w", s.c.o.Plan.Queue, err)
	}
	s.leftover() // not before: the broker would deliver it again at once
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

// releaseUnstarted requeues a delivery that no worker has taken.
func (s *session) releaseUnstarted(d delivery) {
	r := &record{}
	r.begin(d)
	s.release(r, false)
}

// release requeues a message that no worker has taken. The broker may count that against its delivery limit. In order
// the end of the channel returns it.
func (s *session) release(r *record, read bool) {
	if !r.passed {
		s.untaken(delivery{r.delivery, s, r.held})
	}
	by := topology.Settlement{}.Released(message.ReasonUndispatched)
	if p := s.plan(); p.RequeueLimit > 0 && r.delivery.Missing == 0 { // else the headers need not be read
		if !read {
			r.read(p)
		}
		by = p.Settlement(&r.m, by.Verdict)
	}
	s.settle(r, by)
}

// close ends the session's consumer. On a live session it waits until every delivery has ended and is settled; on a
// lost one it leaves the rest to the settler, which counts late settlements as stale.
func (s *session) close() {
	defer func() {
		if s.gone() {
			s.lose()
		}
	}()
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

// lose is for a session whose last settlements may not have arrived.
func (s *session) lose() { s.settler.inFlight.lose(int(s.lastTag)) } // #nosec G115 -- of one session
