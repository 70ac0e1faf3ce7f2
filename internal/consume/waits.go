package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	goretry "github.com/sethvargo/go-retry"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// The functions of this file wait, so they run beside the workers: a message that waits holds its prefetch slot, never
// a worker.

// publishTimeout bounds one publish of a small message with its confirm, see timeToPublish. Between two tries the
// original stays unacked.
const (
	publishTimeout  = 10 * time.Second
	publishPauseMin = 500 * time.Millisecond
	publishPauseMax = 10 * time.Second
)

// beside runs wait on a goroutine of its own.
func (s *session) beside(r *record, by topology.Settlement, wait func(*record, topology.Settlement)) {
	s.c.background.Go(func() { s.c.guard(r, func(r *record) { wait(r, by) }) })
}

// replace publishes the message that takes the original's place, then settles the original. Until the broker has
// confirmed the copy the original stays unacked, however long that takes; in order until its channel has to be closed.
// A stop ends the pause between two tries: the message is given back when the try that follows fails, too.
func (s *session) replace(r *record, by topology.Settlement) {
	pauses := goretry.WithCappedDuration(publishPauseMax, goretry.NewExponential(s.c.o.PublishPause))
	for failed, last := false, s.c.stops(); s.publish(r, by.Publish) != nil; last = s.c.stops() {
		if !failed {
			failed = true
			s.c.addUnpublished(1)
			defer s.c.addUnpublished(-1)
		}
		pause, _ := pauses.Next()
		if why, over := s.wait(pause, s.c.stopping); !over && (last || why != message.ReasonShutdown) {
			by = by.Released(why)
			break
		}
	}
	s.end(r, by)
}

// checkPatience is how long a message waits for a check before its retry is published instead, which needs none.
const checkPatience = time.Second

// unchecked reports whether a reject needs a check of the topology first. Then the message is settled after the check,
// by the plan that the check leaves: the broker drops a rejected message without a report where its exchange, queue or
// binding is missing. A message waits for one check, and its retry is published if that takes longer than
// checkPatience: if it asked again, it would never be settled where a check takes longer than its result counts.
func (s *session) unchecked(r *record, by topology.Settlement) bool {
	if s.c.o.RequestCheck == nil || r.checked {
		return false
	}
	checked := s.c.o.RequestCheck()
	if checked == nil {
		return false
	}
	s.beside(r.keep(), by, func(r *record, by topology.Settlement) {
		plan := s.plan
		patience := time.NewTimer(checkPatience)
		defer patience.Stop()
		select {
		case <-checked:
		case <-patience.C: // the connection of the check may wait for the memory that this message holds
			plan = func() *topology.Plan { return s.plan().WithoutReject() }
		case <-s.done:
		case <-s.c.interrupt.Done():
			s.end(r, by.Released(message.ReasonShutdown))
			return
		}
		r.checked = true
		by = plan().Settlement(&r.m, by.Verdict)
		by.Pause = 0 // it has begun before the check
		s.settle(r, by)
	})
	return true
}

// timeToPublish is publishTimeout and a second for each MiB of the body. A try that ends too early is a copy too many.
func timeToPublish(p *message.Publication) time.Duration {
	return publishTimeout + time.Duration(len(p.Msg.Body)>>20)*time.Second
}

// publish publishes once. When the session has ended it fails: the message is delivered again.
func (s *session) publish(r *record, p *message.Publication) error {
	if s.gone() {
		return broker.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(s.c.interrupt, timeToPublish(p))
	defer cancel()
	r.span.Send(p.Exchange, p.Key)
	err := s.c.o.Publisher.Publish(ctx, p)
	r.span.SendEnd(err)
	if err == nil {
		return nil
	}
	c := s.c
	if p.Kind == message.KindPark {
		c.metrics.parkFailures.Inc()
	}
	c.failures.Do(func(suppressed int) { // during an alarm every try of every message fails
		c.o.Logger.Warn("publish failed", "kind", p.Kind, "exchange", p.Exchange, "routing_key", p.Key,
			"message_id", r.m.MessageID, "error", err, "trace_id", r.span.TraceID(), "suppressed", suppressed)
	})
	if c.o.Unroutable != nil && errors.Is(err, broker.ErrUnroutable) {
		c.o.Unroutable(p.Exchange, p.Key, err)
	}
	return err
}

// delay holds a message for the settlement's time, then requeues it. When no slot is free the message waits in the
// broker instead, if the plan has a route for that: held messages would otherwise starve those behind them.
func (s *session) delay(r *record, by topology.Settlement) {
	by.Verdict.Cause.Problem, by.Verdict.Cause.Answer = nil, "" // only a park writes them down
	select {
	case s.delays <- struct{}{}:
		r.strip()
		by.Detour = nil
		s.beside(r, by, func(r *record, by topology.Settlement) {
			s.hold(by)
			<-s.delays
			s.end(r, by)
		})
	default:
		if by.Detour == nil {
			r.strip()
		}
		s.beside(r, by, func(r *record, by topology.Settlement) {
			// Spaced out, or messages that are not due would circulate as fast as the app answers.
			if _, over := s.wait(s.c.overflow.Reserve().Delay(), s.c.stopping); over {
				by = s.detour(r, by)
			}
			s.end(r, by)
		})
	}
}

// A body that did not fit is transferred with each delivery. So it is tried again missingPause after the last try, and
// a second later for each missingBytes of it.
const (
	missingPause = 100 * time.Millisecond
	missingBytes = 16 << 20
)

// awaitMemory requeues a message whose body could not be kept, when there is memory for it, but after by.Hold at the
// latest. In order it ends the channel: only the next delivery has a body again. The same memory fits each message that
// waits for some: so only one of them is requeued for it, and takes the memory with its next delivery, before another
// one looks for it.
func (s *session) awaitMemory(r *record, by topology.Settlement) {
	memory, n := r.delivery.Lacked()
	pause := min(by.Hold, missingPause+time.Duration(r.delivery.Missing)*time.Second/missingBytes)
	r.strip()
	s.c.delayed.Add(1)
	defer s.c.delayed.Add(-1)
	late := time.After(by.Hold)
	s.wait(pause, s.c.stopping)
	for {
		freed, turn := memory.Freed(), s.c.memoryTurn
		if !memory.Fits(n) {
			turn = nil
		}
		select {
		case turn <- struct{}{}:
			if !memory.Fits(n) {
				<-turn
				continue
			}
			time.AfterFunc(pause, func() { <-turn })
		case <-freed:
			continue
		case <-late:
		case <-s.done:
		case <-s.leaving.Done():
		case <-s.c.stopping:
		}
		break
	}
	s.end(r, by)
}

// retreat releases a message whose app is down. While the consumer is registered the broker would deliver the message
// again at once: the closed gate cancels the consumer, unless it opens again before.
func (s *session) retreat(r *record, by topology.Settlement) {
	r.strip()
	s.awaitRetreat()
	s.end(r, by)
}

// awaitRetreat waits until the consumer is gone from the broker, or the app is back.
func (s *session) awaitRetreat() {
	flow := s.c.o.Flow
	for changed := flow.Changed(); s.c.Active() && !flow.Open() && !s.gone(); changed = flow.Changed() {
		select {
		case <-changed:
		case <-s.done:
		}
	}
}

// detour publishes the message to where it waits in the broker, and returns the settlement by which the copy takes the
// original's place. When that fails the message is held here, without a slot.
func (s *session) detour(r *record, by topology.Settlement) topology.Settlement {
	if by.Detour == nil || s.publish(r, by.Detour) != nil {
		s.hold(by)
		return by
	}
	by.Final = topology.FinalAck
	return by
}

// putBehind returns a message to the queue behind the other messages.
func (s *session) putBehind(r *record, by topology.Settlement) { s.end(r, s.detour(r, by)) }

func (s *session) hold(by topology.Settlement) {
	s.c.delayed.Add(1)
	defer s.c.delayed.Add(-1)
	s.wait(by.Hold+rand.N(by.Jitter+1), s.c.stopping) // #nosec G404 -- spreads load, guards nothing
}

// wait lets d pass. It returns early, with the reason to give the message back, when the session ends or leaves, or
// stop is closed.
func (s *session) wait(d time.Duration, stop <-chan struct{}) (why message.Reason, over bool) {
	select {
	case <-time.After(d):
		return 0, true
	case <-s.done:
		return message.ReasonSessionLost, false
	case <-s.leaving.Done():
		return message.ReasonSessionLost, false
	case <-stop:
		return message.ReasonShutdown, false
	}
}
