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

// beside runs wait on a goroutine of its own, and then settles by what it returns.
func (s *session) beside(a attempt, by topology.Settlement, wait waiting, then func(attempt, topology.Settlement)) {
	s.c.background.Go(func() {
		by, ok := s.c.guard(&a, func() topology.Settlement { return wait(&a, by) })
		if !ok {
			then = s.settle
		}
		then(a, by)
	})
}

type waiting func(*attempt, topology.Settlement) topology.Settlement

// replace publishes the message that takes the original's place, then settles the original. Until the broker has
// confirmed the copy the original stays unacked, however long that takes; in order until its channel has to be closed.
// A stop ends the pause between two tries: the message is given back when the try that follows fails, too.
func (s *session) replace(a *attempt, by topology.Settlement) topology.Settlement {
	pauses := goretry.WithCappedDuration(publishPauseMax, goretry.NewExponential(s.c.o.PublishPause))
	for failed, last := false, s.c.stops(); s.publish(a, by.Publish) != nil; last = s.c.stops() {
		if !failed {
			failed = true
			s.c.addUnpublished(1)
			defer s.c.addUnpublished(-1)
		}
		pause, _ := pauses.Next()
		if why, over := s.wait(pause, s.c.stop.stopping); !over && (last || why != message.ReasonShutdown) {
			return by.Released(why)
		}
	}
	return by
}

// checkPatience is how long a message waits for a check before its retry is published instead, which needs none.
const checkPatience = time.Second

// unchecked returns the wait for a check of the topology where a reject needs one first, else nil. The message is
// settled after the check, by the plan that the check leaves: the broker drops a rejected message without a report
// where its exchange, queue or binding is missing. A message waits for one check, and its retry is published if that
// takes longer than checkPatience: if it asked again, it would never be settled where a check takes longer than its
// result counts.
func (s *session) unchecked(a *attempt, by *topology.Settlement) waiting {
	if by.Final != topology.FinalReject || s.c.o.RequestCheck == nil || a.checked {
		return nil
	}
	checked := s.c.o.RequestCheck()
	if checked == nil {
		return nil
	}
	return func(a *attempt, by topology.Settlement) topology.Settlement {
		plan := s.plan
		patience := time.NewTimer(checkPatience)
		defer patience.Stop()
		select {
		case <-checked:
		case <-patience.C: // the connection of the check may wait for the memory that this message holds
			plan = func() *topology.Plan { return s.plan().WithoutReject() }
		case <-s.done:
		case <-s.c.stop.interrupt.Done():
			return by.Released(message.ReasonShutdown)
		}
		a.checked = true
		by = plan().Settlement(&a.m, by.Verdict)
		by.Pause = 0 // it has begun before the check
		return by
	}
}

// awaitEarlier waits for the end of the attempt on a lost session, and settles the copy by its outcome. Without one the
// copy is given back: its next delivery is POSTed.
func (s *session) awaitEarlier(a *attempt, by topology.Settlement) topology.Settlement {
	select {
	case <-a.known.Wait:
	case <-s.done:
		return by
	case <-s.c.stop.interrupt.Done():
		by.Kind = topology.SettleNow
		return by
	}
	a.known = s.c.memory.Seen(a.Delivery)
	a.m.RetryCount = max(a.m.RetryCount, a.known.Failed)
	if a.known.Outcome == nil && a.known.Wait == nil {
		return s.unstarted(a)
	}
	return s.c.try(a)
}

// timeToPublish is publishTimeout and a second for each MiB of the body. A try that ends too early is a copy too many.
func timeToPublish(p *message.Publication) time.Duration {
	return publishTimeout + time.Duration(len(p.Msg.Body)>>20)*time.Second
}

// publish publishes once. When the session has ended it fails: the message is delivered again.
func (s *session) publish(a *attempt, p *message.Publication) error {
	if s.gone() {
		return broker.ErrDisconnected
	}
	ctx, cancel := context.WithTimeout(s.c.stop.interrupt, timeToPublish(p))
	defer cancel()
	a.span.Send(p.Exchange, p.Key)
	err := s.c.o.Publisher.Publish(ctx, p)
	a.span.SendEnd(err)
	if err == nil {
		return nil
	}
	c := s.c
	if p.Kind == message.KindPark {
		c.metrics.parkFailures.Inc()
	}
	c.unpublished.log.Do(func(suppressed int) { // during an alarm every try of every message fails
		c.o.Logger.Warn("publish failed", "kind", p.Kind, "exchange", p.Exchange, "routing_key", p.Key,
			"message_id", a.m.MessageID, "error", err, "trace_id", a.span.TraceID(), "suppressed", suppressed)
	})
	if c.o.Unroutable != nil && errors.Is(err, broker.ErrUnroutable) {
		c.o.Unroutable(p.Exchange, p.Key, err)
	}
	return err
}

// delay holds a message for the settlement's time, then requeues it. When no slot is free the message waits in the
// broker instead, if the plan has a route for that: held messages would otherwise starve those behind them.
func (s *session) delay(a attempt, by topology.Settlement) {
	by.Verdict.Cause.Problem, by.Verdict.Cause.Answer = nil, "" // only a park writes them down
	select {
	case s.delays <- struct{}{}:
		a.strip()
		by.Detour = nil
		s.beside(a, by, func(_ *attempt, by topology.Settlement) topology.Settlement {
			s.hold(by)
			<-s.delays
			return by
		}, s.end)
		return
	default:
	}
	if a.retain(); by.Detour == nil {
		a.strip()
	}
	s.beside(a, by, func(a *attempt, by topology.Settlement) topology.Settlement {
		// Spaced out, or messages that are not due would circulate as fast as the app answers.
		if _, over := s.wait(s.c.overflow.Reserve().Delay(), s.c.stop.stopping); over {
			return s.detour(a, by)
		}
		return by
	}, s.end)
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
func (s *session) awaitMemory(a *attempt, by topology.Settlement) topology.Settlement {
	account, n := a.Lacked()
	pause := min(by.Hold, missingPause+time.Duration(a.Missing)*time.Second/missingBytes)
	a.strip()
	s.c.counts.delayed.Add(1)
	defer s.c.counts.delayed.Add(-1)
	late := time.After(by.Hold)
	s.wait(pause, s.c.stop.stopping)
	for {
		freed, turn := account.Freed(), s.c.large.turn
		if !account.Fits(n) {
			turn = nil
		}
		select {
		case turn <- struct{}{}:
			if !account.Fits(n) {
				<-turn
				continue
			}
			time.AfterFunc(pause, func() { <-turn })
		case <-freed:
			continue
		case <-late:
		case <-s.done:
		case <-s.leaving.Done():
		case <-s.c.stop.stopping:
		}
		return by
	}
}

// retreat releases a message whose app is down. While the consumer is registered the broker would deliver the message
// again at once: the closed gate cancels the consumer, unless it opens again before.
func (s *session) retreat(a *attempt, by topology.Settlement) topology.Settlement {
	a.strip()
	s.awaitRetreat()
	return by
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
func (s *session) detour(a *attempt, by topology.Settlement) topology.Settlement {
	if by.Detour == nil || s.publish(a, by.Detour) != nil {
		s.hold(by)
		return by
	}
	by.Final = topology.FinalAck
	return by
}

func (s *session) hold(by topology.Settlement) {
	s.c.counts.delayed.Add(1)
	defer s.c.counts.delayed.Add(-1)
	s.wait(by.Hold+rand.N(by.Jitter+1), s.c.stop.stopping) // #nosec G404 -- spreads load, guards nothing
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
