package consume

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// Everything in this file waits, so it runs beside the workers: a message that waits holds its prefetch slot, never
// a worker.

// publishTimeout bounds one publish with its confirm; between two tries the original rests, unacked.
const (
	publishTimeout  = 10 * time.Second
	publishPauseMin = 500 * time.Millisecond
	publishPauseMax = 10 * time.Second
)

// beside runs what waits, and keeps a panic over one message from taking the others along.
func (r *run) beside(tag uint64, rec *record, wait func()) {
	r.c.background.Go(func() {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			r.c.panicked(rec.m.MessageID, p)
			if !rec.finished {
				rec.s = r.c.afterPanic()
				r.hold(&rec.s)
				r.finishWith(tag, rec)
			}
		}()
		wait()
	})
}

// replace publishes what takes the original's place, then settles the original. Until the broker has confirmed the
// copy the original stays unacked, however long that takes.
func (r *run) replace(tag uint64, rec *record) {
	p := rec.s.Publish
	stuck := false
	defer func() {
		if stuck {
			r.c.stuck(-1)
		}
	}()
	for pause := r.c.o.PublishPause; ; pause = min(2*pause, publishPauseMax) {
		if r.gone() {
			r.abandon(tag, rec, message.ReasonSessionLost)
			return
		}
		rec.span.Send(destination(p))
		err := r.publish(p, rec)
		rec.span.SendEnd(err)
		if err == nil {
			r.finishWith(tag, rec)
			return
		}
		if !stuck {
			stuck = true
			r.c.stuck(1)
		}
		switch r.wait(pause, r.c.interrupt.Done()) {
		case waited:
		case sessionGone:
			r.abandon(tag, rec, message.ReasonSessionLost)
			return
		case told:
			r.c.cut.Add(1)
			r.abandon(tag, rec, message.ReasonShutdown)
			return
		}
	}
}

func (r *run) publish(p *broker.Publication, rec *record) error {
	ctx, cancel := context.WithTimeout(r.c.interrupt, publishTimeout)
	defer cancel()
	err := r.c.o.Publisher.Publish(ctx, p)
	if err == nil {
		if p.Kind == broker.KindRetry {
			r.prove()
		}
		return nil
	}
	if p.Kind == broker.KindPark {
		r.c.metrics.parkFailures.Inc()
	}
	r.c.failures.Do(func(suppressed int) { // an alarm fails every try of every message
		r.c.o.Logger.Warn("publish failed", "queue", r.c.o.Plan.Queue, "kind", p.Kind,
			"exchange", p.Exchange, "key", p.Key, "message_id", rec.m.MessageID, "error", err, "suppressed", suppressed)
	})
	if r.c.o.Unroutable != nil && errors.Is(err, broker.ErrUnroutable) {
		r.c.o.Unroutable(p.Exchange, p.Key)
	}
	return err
}

// abandon gives the original back, uncounted.
func (r *run) abandon(tag uint64, rec *record, reason message.Reason) {
	rec.s.Verdict.Action, rec.s.Verdict.Reason, rec.s.Final = message.Release, reason, topology.FinalRequeue
	r.finishWith(tag, rec)
}

// destination names where a publication goes: its exchange, or the queue when it goes there directly.
func destination(p *broker.Publication) string {
	if p.Exchange != "" {
		return p.Exchange
	}
	return p.Key
}

// sleep holds a message for the settlement's time, then requeues it. When no slot is free the message waits in the
// broker instead, if the plan has a way, so that more sleepers than slots never starve the messages behind them.
func (r *run) sleep(tag uint64, rec *record) {
	if rec.s.Detour == nil {
		rec.free()
	}
	select {
	case r.sleepers <- struct{}{}:
		rec.free()
		r.beside(tag, rec, func() {
			r.hold(&rec.s)
			<-r.sleepers
			r.finishWith(tag, rec)
		})
	default:
		r.beside(tag, rec, func() {
			// Bounded, or messages that are not due would go round as fast as the app can say so.
			if r.wait(r.c.overflow.reserve(), r.c.stopping) == waited && !r.gone() {
				r.detour(rec)
			}
			r.finishWith(tag, rec)
		})
	}
}

// detour lets the message wait in the broker. When that fails it is held here after all, without a slot of its own.
func (r *run) detour(rec *record) {
	p := rec.s.Detour
	if p == nil {
		r.hold(&rec.s)
		return
	}
	rec.span.Send(destination(p))
	err := r.publish(p, rec)
	rec.span.SendEnd(err)
	if err != nil {
		r.hold(&rec.s)
		return
	}
	rec.s.Final = topology.FinalAck // the copy takes the original's place
}

func (r *run) hold(s *topology.Settlement) {
	d := s.Hold
	if s.Jitter > 0 {
		d += rand.N(s.Jitter) // #nosec G404 -- spreads load, guards nothing
	}
	r.c.delayed.Add(1)
	defer r.c.delayed.Add(-1)
	r.wait(d, r.c.stopping)
}

type waitEnd uint8

const (
	waited waitEnd = iota
	sessionGone
	told
)

// wait lets d pass, unless the session ends or stop is closed before.
func (r *run) wait(d time.Duration, stop <-chan struct{}) waitEnd {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return waited
	case <-r.done:
		return sessionGone
	case <-stop:
		return told
	}
}
