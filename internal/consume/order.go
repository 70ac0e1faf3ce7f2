package consume

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/memory"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// maxStay is the age at which a delivery is not handled any more: everything unsettled returns to the queue and is
// delivered again, before the broker closes the channel over it (after 30 minutes). maxUnsettled is for its attempt.
const maxStay, maxUnsettled = 15 * time.Minute, 28 * time.Minute

// order decides which deliveries may be handled, so that the messages of one key are handled one after the other. It
// belongs to the consumer and not to a session: an attempt of a lost session still runs, and keeps its key busy.
type order struct {
	c *Consumer

	mu       sync.Mutex
	all      map[*place]struct{}
	lanes    map[string][]*place                 // by key: the first has to end before the next; without a key: none
	ready    []*place                            // may be handled now
	inflight int                                 // offered to a worker, POSTed or parked
	shown    flow.Reason                         // in the gate, why no message is handled; "": none
	stuck    map[flow.Reason]*telemetry.Throttle // log lines about that: it begins and ends with each attempt
}

// place is that of one delivery in the order. One that ended unsettled stays, and keeps its key busy, until its session
// is dropped: it is delivered again before all that is behind it.
type place struct {
	delivery // nil inside: it has ended
	key      string
	known    memory.Known // from when it is the first of its key
	arrived  time.Time
	timer    *time.Timer // until known.Due; nil: none runs
	inflight bool
}

func newOrder(c *Consumer) *order {
	return &order{c: c, all: map[*place]struct{}{}, lanes: map[string][]*place{},
		stuck: map[flow.Reason]*telemetry.Throttle{
			flow.Order: {Interval: time.Minute}, flow.Publishing: {Interval: time.Minute},
		}}
}

// unlock also makes pump see what is ready.
func (o *order) unlock() {
	o.report()
	if len(o.ready) > 0 {
		signal(o.c.woken)
	}
	o.mu.Unlock()
}

// report shows in the gate whether messages that wait take the whole window: for a failed message of their key, or for
// one that cannot be parked. The gate stays open, because the end of the channel would begin everything anew.
func (o *order) report() {
	why, unpublished := flow.Reason(""), o.c.Unpublished()
	if len(o.all) >= o.c.o.Prefetch && o.inflight == unpublished && len(o.ready) == 0 {
		if why = flow.Order; unpublished > 0 {
			why = flow.Publishing
		}
	}
	if why == o.shown {
		return
	}
	o.c.o.Flow.Lift(o.shown)
	if o.shown = why; why == "" {
		return
	}
	detail, level, waiting := "every message in flight waits for a failed message of its key", slog.LevelWarn, len(o.all)
	if why == flow.Publishing {
		detail, level = "every message in flight waits for a message that cannot be parked", slog.LevelError
		waiting = unpublished
	}
	o.c.o.Flow.Show(why, detail)
	go o.stuck[why].Do(func(suppressed int) { // mu is held, and only pump offers messages: neither waits for stderr
		o.c.o.Logger.Log(context.Background(), level, "paused", "reason", string(why), "waiting", waiting,
			"suppressed", suppressed)
	})
}

// add makes a delivery the last of its key.
func (o *order) add(s *session, d *broker.Delivery) {
	e := &place{arrived: time.Now(), known: o.c.memory.Of(d)}
	e.delivery = delivery{d, s, e}
	a := &s.pump.scratch
	_, _ = o.c.guard(a, func() (none topology.Settlement) {
		o.c.decode(a, e.delivery)
		e.key = a.m.Key(o.c.o.OrderBy)
		return none
	})
	*a = attempt{}
	o.mu.Lock()
	defer o.unlock()
	o.all[e] = struct{}{}
	if s.pump.blind {
		return // and it is not behind a key that cannot be read
	}
	s.pump.blind = errors.Is(d.MissingWhy, broker.ErrNoMemory)
	if e.key != "" {
		o.lanes[e.key] = append(o.lanes[e.key], e)
	}
	if len(o.lanes[e.key]) < 2 {
		o.recall(e)
	}
}

// recall starts the first of a key where its last delivery ended.
func (o *order) recall(e *place) {
	e.known = o.c.memory.Seen(e.Delivery)
	o.start(e)
}

// start makes the first of a key ready, at its time.
func (o *order) start(e *place) {
	d := time.Until(e.known.Due)
	if d <= 0 {
		o.ready = append(o.ready, e)
		return
	}
	o.c.counts.delayed.Add(1)
	e.timer = time.AfterFunc(d, func() {
		o.mu.Lock()
		defer o.unlock()
		if o.stop(e) {
			o.ready = append(o.ready, e)
		}
	})
}

// stop ends the delay of e, and reports whether there was one.
func (o *order) stop(e *place) bool {
	if e.timer == nil {
		return false
	}
	e.timer.Stop()
	e.timer = nil
	o.c.counts.delayed.Add(-1)
	return true
}

// take hands out the delivery that was ready first; it is empty without one, and if that one is too old.
func (o *order) take() delivery {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.ready) == 0 {
		return delivery{}
	}
	e := o.ready[0]
	if time.Since(e.arrived) > min(maxStay, maxUnsettled-o.c.o.Attempt) {
		e.session.leave()
		return delivery{}
	}
	o.ready = o.ready[1:]
	o.inflight++
	e.inflight = true
	return e.delivery
}

// retryLater ends an attempt: the next one is at known.Due. When the session has ended, the message returns to the
// queue.
func (o *order) retryLater(e *place, known memory.Known) {
	o.mu.Lock()
	defer o.unlock()
	o.inflight--
	e.inflight, e.known = false, known
	if e.session.dropped {
		o.finish(e)
	} else {
		o.start(e)
	}
}

// again ends an attempt, not the delivery: the message stays in its place, and is tried again here.
func (s *session) again(a attempt, by topology.Settlement) {
	v := &by.Verdict
	s.c.write(&a, v, "hold")
	s.c.metrics.settled[v.Action][v.Reason].Inc()
	s.memory.Again(&a.known)
	wait := by.Hold + rand.N(by.Jitter+1) // #nosec G404 -- spreads load, guards nothing
	a.known.Due = time.Now().Add(wait)
	if v.Action == message.Retry {
		a.known.Fail(a.m.RetryCount)
	}
	s.c.order.retryLater(a.place, a.known)
	s.outstanding.Done()
}

// end ends a delivery. When it was settled, the next one of its key follows.
func (o *order) end(e *place, settled bool) {
	o.mu.Lock()
	defer o.unlock()
	o.inflight--
	e.inflight, e.Delivery = false, nil
	if settled || e.session.dropped {
		o.finish(e)
	} else {
		e.session.leave()
	}
}

func (o *order) finish(e *place) {
	o.remove(e)
	if lane := o.lanes[e.key]; len(lane) > 1 {
		o.lanes[e.key] = lane[1:]
		o.recall(lane[1])
	} else {
		delete(o.lanes, e.key)
	}
}

// remove takes e out. What has not ended returns to the queue.
func (o *order) remove(e *place) {
	delete(o.all, e)
	o.stop(e)
	if e.Delivery != nil {
		o.c.memory.Returned(e.known)
		e.Free()
		o.c.counts.returned.Add(1)
	}
}

// drop ends a session: everything of it returns to the queue, and only what is in flight stays until it ends.
func (o *order) drop(s *session) {
	o.mu.Lock()
	defer o.unlock()
	s.dropped = true
	s.leave() // a park that cannot be published must not keep the channel
	o.ready = nil
	for key, lane := range o.lanes {
		if lane[0].inflight {
			o.lanes[key] = lane[:1]
		} else {
			delete(o.lanes, key)
		}
	}
	for e := range o.all {
		if !e.inflight {
			o.remove(e)
		}
	}
}
