package consume

import (
	"context"
	"slices"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// Batch is how messages are gathered for one POST.
type Batch struct {
	Size       int           // messages of one POST at most; below 2 each message is POSTed by Options.Dispatcher
	Wait       time.Duration // for more, from the first message on
	Bytes      int64         // of the bodies of one POST; a larger message is POSTed alone
	Dispatcher BatchDispatcher
}

// BatchDispatcher POSTs messages of one URL in one request. Cancelling ctx interrupts the attempt.
type BatchDispatcher interface {
	// Route returns the URL of m's POST, "" for that of the app.
	Route(m *message.Message) (route int, url string)

	// DispatchBatch POSTs at least one message. each has the outcome of every message, in their order, if the app
	// answered 2xx and what it said could be read. Otherwise it is nil, and whole is the outcome of all of them.
	// trace is the trace context of the request; each message has one of its own.
	DispatchBatch(ctx context.Context, ms []*message.Message, trace message.TraceContext) (
		whole message.Outcome, each []message.Outcome)
}

// handleBatch is the line that several messages of one POST take: what is handle's for one message is done for each.
func (c *Consumer) handleBatch(b *batch) {
	defer b.recycle()
	if len(b.attempts) == 1 {
		a := &b.attempts[0]
		by, _ := c.guard(a, func() topology.Settlement {
			by := c.try(a)
			if by.Verdict.Cause.Posted() && by.Kind != topology.SettleEarlier {
				c.metrics.batch.Observe(1)
			}
			return by
		})
		a.session.settle(*a, by)
		return
	}
	whole, each := c.dispatchBatch(b)
	if each == nil && c.split(b, &whole) {
		return
	}
	for i := range b.attempts {
		a, o := &b.attempts[i], whole
		if each != nil {
			o = each[i]
		}
		by, _ := c.guard(a, func() topology.Settlement { return c.decide(a, o) })
		a.session.settle(*a, by)
		*a = attempt{} // its memory was given back
	}
}

// dispatchBatch POSTs the messages of b, see BatchDispatcher.
func (c *Consumer) dispatchBatch(b *batch) (whole message.Outcome, each []message.Outcome) {
	for i := range b.attempts { // none has an outcome: gather leaves those alone that are delivered again
		b.attempts[i].session.memory.Begin(&b.attempts[i].known)
	}
	if b.attempts[0].session.gone() { // the broker delivers the messages again: a POST now would double them
		return message.Outcome{Failure: message.FailureUndispatched}, nil
	}
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(b.attempts[0].m.MessageID, p)
			whole, each = message.Outcome{Failure: message.FailurePanic}, nil
		}
	}()
	for i := range b.attempts {
		a := &b.attempts[i]
		c.trace(a)
		a.m.Trace = message.TraceContext(a.span.Carrier())
		b.messages = append(b.messages, &a.m)
	}
	c.metrics.batch.Observe(float64(len(b.attempts)))
	span := c.o.Tracing.Batch(len(b.attempts), func(i int) *telemetry.Span { return &b.attempts[i].span })
	whole, each = c.o.Batch.Dispatcher.DispatchBatch(c.stop.interrupt, b.messages, message.TraceContext(span.Carrier()))
	span.ClientEnd(whole.Failure != message.FailureNoRoute, whole.Status, whole.Failure.String(), whole.URL)
	c.measure(whole.Elapsed)
	if each == nil {
		c.o.Flow.Report(b.messages[0], &whole)
	}
	for i := range each {
		c.o.Flow.Report(b.messages[i], &each[i])
	}
	return whole, each
}

// split takes care of a batch of several messages that failed as a whole, and reports whether it did. What the failure
// says about them is not known: they go out again, each alone, and those attempts count. An answer that gives all of
// them back or acks them is left to the caller.
func (c *Consumer) split(b *batch, whole *message.Outcome) bool {
	v, s := c.o.Policy.Decide(&b.attempts[0].m, *whole), b.attempts[0].session
	switch {
	case v.Reason == message.ReasonAppDown:
		s.retreatAll(slices.Clone(b.attempts), v)
		return true
	case v.Action == message.Ack, v.Action == message.Release, v.Action == message.Requeue:
		return false
	}
	c.metrics.split.Inc()
	c.o.Logger.Warn("batch failed", "messages", len(b.attempts), "status", whole.Status,
		"failure", whole.Failure.String(), "error", whole.Err, "reason", v.Reason.String(), "url", whole.URL)
	if v.Delay > 0 || v.Pause > 0 {
		c.o.Flow.PauseFor(max(v.Delay, v.Pause))
	}
	s.giveBack(b)
	return true
}

// retreatAll is retreat for all messages of a batch.
func (s *session) retreatAll(all []attempt, v message.Verdict) {
	for i := range all {
		all[i].strip()
	}
	s.c.background.Go(func() {
		s.awaitRetreat()
		for i := range all {
			s.end(all[i], topology.Settlement{Verdict: v}.Released(v.Reason))
		}
	})
}

// giveBack returns the messages of a batch to pump, each for a POST of its own. When pump has ended they are released:
// their next delivery is a second one, and so is POSTed alone, too.
func (s *session) giveBack(b *batch) {
	back := &s.pump.back
	back.mu.Lock()
	pumping := back.pumping
	for i := range b.attempts {
		if pumping {
			back.all = append(back.all, newAlone(&b.attempts[i], b.since))
		}
	}
	back.mu.Unlock()
	if pumping {
		signal(s.c.woken)
	} else {
		s.releaseBatch(b)
	}
}

// takeBack takes what giveBack has returned.
func (s *session) takeBack() []*batch {
	back := &s.pump.back
	back.mu.Lock()
	defer back.mu.Unlock()
	all := back.all
	back.all = nil
	return all
}

// gather moves deliveries into batches until one has to go out, and returns it; nil without one.
func (s *session) gather() *batch {
	c, now := s.pump.collector, time.Now()
	c.full = append(c.full, s.takeBack()...)
	for len(c.full) == 0 {
		d := s.nextWhole()
		if d.Delivery == nil {
			break
		}
		s.collect(d, now)
	}
	b, wait := c.due(now)
	if wait > 0 {
		s.pump.overdue.Reset(wait)
	}
	return b
}

// collect adds a delivery to a batch.
func (s *session) collect(d delivery, now time.Time) {
	a, c := &s.pump.scratch, s.pump.collector
	by, ok := s.c.guard(a, func() (none topology.Settlement) {
		s.c.read(a, d)
		_, url := c.limits.Dispatcher.Route(&a.m)
		// What was delivered before may have failed in a batch, or be why a process ended.
		alone := a.m.Redelivered || a.m.RetryCount > 0 || s.c.o.Flow.Ramping() || s.c.o.Plan.Foreign(&d.Delivery.Delivery)
		c.add(a, url, alone, now)
		return none
	})
	if !ok {
		s.settle(*a, by)
	}
	*a = attempt{}
}

// releaseBatch requeues messages that no worker has taken.
func (s *session) releaseBatch(b *batch) {
	for i := range b.attempts {
		a := &b.attempts[i]
		by, _ := s.c.guard(a, func() topology.Settlement { return s.unstarted(a) })
		s.settle(*a, by)
	}
}
