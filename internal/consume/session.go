package consume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/memory"
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
	memory  *memory.Session
	plan    func() *topology.Plan // what settles: the consumer's plan as the broker is found

	outstanding sync.WaitGroup // deliveries received and not ended
	delays      chan struct{}  // slots for messages that are held before a requeue

	pump pump

	leaving context.Context    // in order: ends when the channel has to be closed
	leave   context.CancelFunc // it makes pump end, too
	dropped bool               // by order.drop; its mutex guards this
}

func newSession(c *Consumer, sub *broker.Subscription, kill func(), plan func() *topology.Plan) *session {
	s := &session{
		c: c, plan: plan, sub: sub, kill: kill, done: sub.Done(),
		memory: c.memory.Session(c.o.Prefetch),
		// At least one, also when the window leaves no room beside the workers.
		delays: make(chan struct{}, max(1, cmp.Or(c.o.LongPrefetch, c.o.Prefetch)-c.atOnce())),
	}
	s.settler = newSettler(sub, c.o.Prefetch, c.metrics, s.memory)
	if c.o.Batch.Size > 1 {
		s.pump.collector = newCollector(c.o.Batch)
		s.pump.overdue = time.AfterFunc(time.Hour, func() { signal(c.woken) })
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
		unbind := context.AfterFunc(s.c.stop.interrupt, s.kill)
		// As if every message went alone: those of a batch do if it failed.
		registered := s.memory.Registering(int(s.pump.lastTag)) // #nosec G115 -- of one session
		s.sub.Timeout = s.plan().ConsumerTimeout(s.c.o.Prefetch / s.c.o.Concurrency)
		s.pump.long = s.c.pace.long.Load()
		consumer, err := s.sub.Consume(ctx, s.c.Prefetch())
		unbind()
		if err != nil {
			s.c.refused(ctx, err)
			return fmt.Errorf("consume from %q: %w", s.c.o.Plan.Queue, err)
		}
		registered()
		s.c.register(consumer)
		why := s.take(consumer.Deliveries)
		s.c.active.lasting.Store(nil)
		if s.c.order == nil && (errors.Is(why, errPaused) || errors.Is(why, errStopping)) {
			if err := s.cancel(ctx, consumer); err != nil {
				why = err
			}
		}
		s.c.register(nil)
		if s.c.order != nil || !errors.Is(why, errPaused) {
			s.leftover()
			s.freePending() // the broker delivers again what no worker has taken
			s.pump.pending, _ = consumer.Take(s.pump.batch)
			s.pump.lastTag += uint64(len(s.pump.pending))
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
	for _, d := range s.pump.pending {
		s.c.memory.Returned(s.c.memory.Of(d))
		d.Free()
	}
	clear(s.pump.pending)
	s.pump.pending = nil
}

// awaitOpen waits until the gate is open. The error says why the session need not wait any more.
func (s *session) awaitOpen() error {
	flow := s.c.o.Flow
	for changed := flow.Changed(); !flow.Open(); changed = flow.Changed() {
		select {
		case <-changed:
		case <-s.c.stop.stopping:
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
	defer context.AfterFunc(s.c.stop.interrupt, s.kill)() // a broker that does not answer must not outlast the grace
	if err := consumer.Stop(ctx); err != nil {
		return fmt.Errorf("cancel the consumer of %q: %w", s.c.o.Plan.Queue, err)
	}
	s.leftover() // not before: the broker would deliver it again at once
	for ended := false; ; {
		for len(s.pump.pending) > 0 {
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
	a := attempt{delivery: d, known: s.c.knownOf(d), m: message.Message{MessageID: d.MessageId}}
	by, _ := s.c.guard(&a, func() topology.Settlement {
		if s.plan().RequeueLimit > 0 && d.Missing == 0 { // else the headers need not be read
			s.c.read(&a, d)
		}
		return s.unstarted(&a)
	})
	s.settle(a, by)
}

// unstarted is the settlement of a message that no worker has taken. The broker may count its requeue against its
// delivery limit. In order the end of the channel returns it.
func (s *session) unstarted(a *attempt) topology.Settlement {
	by := unattempted(message.ReasonUndispatched, topology.SettleNow)
	if p := s.plan(); p.RequeueLimit > 0 && a.Missing == 0 {
		by = p.Settlement(&a.m, by.Verdict)
	}
	return by
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
func (s *session) lose() { s.memory.Lose(int(s.pump.lastTag)) } // #nosec G115 -- of one session
