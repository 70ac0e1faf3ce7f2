package consume

import (
	"context"
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
	if len(b.records) == 1 {
		c.guard(&b.records[0], func(r *record) {
			o := c.dispatch(r, &r.m)
			if o.Posted() {
				c.metrics.batch.Observe(1)
			}
			c.judge(r, o)
		})
		b.recycle()
		return
	}
	whole, each := c.dispatchBatch(b)
	if each == nil && c.split(b, &whole) {
		return
	}
	for i := range b.records {
		o := whole
		if each != nil {
			o = each[i]
		}
		c.guard(&b.records[i], func(r *record) { c.judge(r, o) })
	}
	b.recycle()
}

// dispatchBatch POSTs the messages of b, see BatchDispatcher.
func (c *Consumer) dispatchBatch(b *batch) (whole message.Outcome, each []message.Outcome) {
	for i := range b.records { // none has an outcome: gather leaves those alone that are delivered again
		c.recall(&b.records[i], &b.records[i].m)
	}
	if b.records[0].session.gone() { // the broker delivers the messages again: a POST now would double them
		return message.Outcome{Failure: message.FailureUndispatched}, nil
	}
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(b.records[0].m.MessageID, p)
			whole, each = message.Outcome{Failure: message.FailurePanic}, nil
		}
	}()
	for i := range b.records {
		r := &b.records[i]
		c.trace(r)
		r.m.Trace = message.TraceContext(r.span.Carrier())
		b.messages = append(b.messages, &r.m)
	}
	c.metrics.batch.Observe(float64(len(b.records)))
	span := c.o.Tracing.Batch(len(b.records), func(i int) *telemetry.Span { return &b.records[i].span })
	whole, each = c.o.Batch.Dispatcher.DispatchBatch(c.interrupt, b.messages, message.TraceContext(span.Carrier()))
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
	v, s := c.o.Policy.Decide(&b.records[0].m, *whole), b.records[0].session
	switch {
	case v.Reason == message.ReasonAppDown:
		c.background.Go(func() { s.retreatAll(b, v) })
		return true
	case v.Action == message.Ack, v.Action == message.Release, v.Action == message.Requeue:
		return false
	}
	c.metrics.split.Inc()
	c.o.Logger.Warn("batch failed", "messages", len(b.records), "status", whole.Status,
		"failure", whole.Failure.String(), "error", whole.Err, "reason", v.Reason.String(), "url", whole.URL)
	if v.Delay > 0 || v.Pause > 0 {
		c.o.Flow.PauseFor(max(v.Delay, v.Pause))
	}
	s.giveBack(b)
	return true
}

// retreatAll is retreat for all messages of a batch.
func (s *session) retreatAll(b *batch, v message.Verdict) {
	for i := range b.records {
		b.records[i].strip()
	}
	s.awaitRetreat()
	for i := range b.records {
		s.c.guard(&b.records[i], func(r *record) { s.end(r, topology.Settlement{Verdict: v}.Released(v.Reason)) })
	}
	b.recycle()
}

// giveBack returns the messages of a batch to pump, each for a POST of its own. When pump has ended they are released:
// their next delivery is a second one, and so is POSTed alone, too.
func (s *session) giveBack(b *batch) {
	s.backMu.Lock()
	pumping := s.pumping
	for i := range b.records {
		if pumping {
			s.back = append(s.back, newAlone(&b.records[i], b.since))
		}
	}
	s.backMu.Unlock()
	if pumping {
		signal(s.c.woken)
		b.recycle()
	} else {
		s.releaseBatch(b)
	}
}

// takeBack takes what giveBack has returned.
func (s *session) takeBack() []*batch {
	s.backMu.Lock()
	defer s.backMu.Unlock()
	back := s.back
	s.back = nil
	return back
}

// gather moves deliveries into batches until one has to go out, and returns it; nil without one.
func (s *session) gather() *batch {
	c, now := s.collector, time.Now()
	c.full = append(c.full, s.takeBack()...)
	for len(c.full) == 0 {
		d := s.nextWhole()
		if d.Delivery == nil {
			break
		}
		s.scratch.begin(d)
		s.c.guard(&s.scratch, func(r *record) {
			m := r.read(s.c.o.Plan)
			_, url := c.limits.Dispatcher.Route(m)
			// What was delivered before may have failed in a batch, or be why a process ended.
			alone := m.Redelivered || m.RetryCount > 0 || s.c.o.Flow.Ramping() || s.c.o.Plan.Foreign(&r.delivery.Delivery)
			c.add(r, url, alone, now)
		})
	}
	s.scratch = record{}
	b, wait := c.due(now)
	if wait > 0 {
		s.overdue.Reset(wait)
	}
	return b
}

// releaseBatch requeues messages that no worker has taken.
func (s *session) releaseBatch(b *batch) {
	for i := range b.records {
		s.c.guard(&b.records[i], func(r *record) { s.release(r, true) })
	}
	b.recycle()
}
