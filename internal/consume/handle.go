package consume

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// work handles what pump offers, one after the other. Its record is reused: the healthy path allocates nothing of its
// own.
func (c *Consumer) work() {
	var r record
	for o := range c.offered {
		messages := o.messages()
		if o.batch != nil {
			c.handleBatch(o.batch)
		} else {
			r.begin(o.delivery)
			c.guard(&r, c.handle)
			r = record{} // the next message may be long in coming
		}
		c.posts.Add(-1)
		c.inflight.Add(-int64(messages))
		free(c.o.Slots)
		signal(c.freed)
	}
}

// signal puts a value into c, which has the capacity 1, unless there is one.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// handle is the line that every message takes; settle ends in session.end, the last call. A delivery that never reaches
// a worker (its session is cancelled, there is no memory for its body) and one that made a worker panic end there, too.
func (c *Consumer) handle(r *record) {
	m := r.read(c.o.Plan)
	o := c.dispatch(r, m)
	c.judge(r, o)
}

// judge decides about a message by what its attempt came to.
func (c *Consumer) judge(r *record, o message.Outcome) {
	m := &r.m
	v := c.o.Policy.Decide(m, o)
	s := r.session.plan().Settlement(m, v)
	r.session.settle(r, s)
}

// dispatch POSTs the message, unless it must not be POSTed: then the outcome says why.
func (c *Consumer) dispatch(r *record, m *message.Message) message.Outcome {
	remembered, known := c.recall(r, m)
	if !known && r.session.gone() { // the broker delivers the message again: a POST now would double it
		return message.Outcome{Failure: message.FailureUndispatched}
	}
	c.trace(r)
	if known {
		return remembered
	}
	if c.o.Plan.Foreign(&r.delivery.Delivery) {
		return message.Outcome{Failure: message.FailureForeign}
	}
	if c.o.Flow.Defers(m) {
		return message.Outcome{Failure: message.FailureDeferred}
	}
	m.Trace = message.TraceContext(r.span.Client())
	o := c.o.Dispatcher.Dispatch(c.interrupt, m)
	r.span.ClientEnd(o.Failure != message.FailureNoRoute, o.Status, o.Failure.String(), o.URL)
	c.o.Flow.Report(m, &o)
	c.measure(o.Elapsed)
	return o
}

// trace begins the span of a message. One that was in a batch that failed has it already.
func (c *Consumer) trace(r *record) {
	if m := &r.m; r.span.TraceID() == "" {
		r.span = c.o.Tracing.Process(telemetry.CarrierFrom(m.Headers), telemetry.Attrs{
			MessageID: m.MessageID, CorrelationID: m.CorrelationID, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
			BodySize: len(m.Body) + int(r.delivery.Missing), RetryCount: m.RetryCount, Redelivered: m.Redelivered,
			Timestamp: m.Timestamp, DeliveryTag: r.tag, Broker: r.session.sub,
		})
	}
}

// settle carries a settlement out: at once where it is a frame to the broker, on a goroutine of its own where it waits
// for a confirm or for time to pass.
func (s *session) settle(r *record, by topology.Settlement) {
	if by.Pause > 0 {
		s.c.o.Flow.PauseFor(by.Pause)
	}
	if r.held != nil && by.Verdict.Action == message.Retry {
		r.held.failed++
		r.held.due = time.Now().Add(by.Hold) // also for the next delivery
		r.counted = true
	}
	r.parks = by.Publish != nil && by.Publish.Kind == message.KindPark
	switch {
	case s.gone(): // the message is delivered again, and that delivery decides: neither park nor copy it
		why := message.ReasonSessionLost
		if by.Verdict.Action == message.Release {
			why = by.Verdict.Reason
		}
		s.end(r, by.Released(why))
	case r.verdict != nil:
		s.beside(r.keep(), by, s.await)
	case by.Publish != nil:
		s.beside(r.retain(), by, s.replace)
	case by.Final == topology.FinalReject && s.unchecked(r, by): // it is settled later
	case by.Verdict.Reason == message.ReasonTooLarge && by.Hold > 0:
		s.beside(r.retain(), by, s.awaitMemory)
	case r.held != nil && by.Hold > 0:
		s.again(r, by)
	case r.held != nil:
		s.end(r, by)
	case by.Verdict.Reason == message.ReasonDeferred:
		s.beside(r.retain(), by, s.putBehind)
	case by.Verdict.Reason == message.ReasonAppDown:
		s.beside(r.retain(), by, s.retreat)
	case by.Hold > 0 || by.Jitter > 0:
		s.delay(r.retain(), by)
	default:
		s.end(r, by)
	}
}

// end ends a delivery: it writes the record, replies the verdict to a canary, and hands the settlement to the settler.
// Every delivery ends here, once. The record comes first: a requeued message can be delivered and recorded again before
// this goroutine runs on.
func (s *session) end(r *record, by topology.Settlement) {
	v := &by.Verdict
	s.c.write(r, v, finalNames[by.Final])
	r.done = true
	s.c.attempts.ended(r, by.Final, s.gone())
	e := ending{tag: r.tag, action: v.Action, reason: v.Reason, final: by.Final}
	if r.passed {
		e.id, e.named, e.outcome = r.id, r.m.MessageID != "", r.lasting(&by)
	}
	by.Publish, by.Detour = nil, nil // hand may wait
	r.recycle()
	s.hand(e)
	if r.held != nil { // behind hand: the acks of a key leave in its order
		s.c.order.end(r.held, by.Final != topology.FinalRequeue)
	}
}

// again ends an attempt, not the delivery: the message stays in its place, and is tried again here.
func (s *session) again(r *record, by topology.Settlement) {
	v := &by.Verdict
	s.c.write(r, v, "hold")
	s.c.metrics.settled[v.Action][v.Reason].Inc()
	s.settler.inFlight.again(r)
	held := r.held
	*r = record{done: true}                           // the next attempt may end before this goroutine runs on
	s.c.order.hold(held, by.Hold+rand.N(by.Jitter+1)) // #nosec G404 -- spreads load, guards nothing
	s.outstanding.Done()
}

func (s *session) hand(e ending) {
	s.settler.endings <- e
	s.outstanding.Done()
}

// guard runs a step of a message. A panic over it does not end the process: it is logged, and the message is requeued
// after a while if it has not been settled.
func (c *Consumer) guard(r *record, step func(*record)) {
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		c.logPanic(r.m.MessageID, p)
		if !r.done {
			r.session.settle(r, requeued(message.ReasonPanic, c.o.Policy.PanicHold))
		}
	}()
	step(r)
}

func (c *Consumer) logPanic(id string, p any) {
	c.o.Logger.Error("panic", "message_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// requeued is the settlement of a message that was not judged: it is tried again after hold.
func requeued(why message.Reason, hold time.Duration) topology.Settlement {
	return topology.Settlement{
		Verdict: message.Verdict{Action: message.Requeue, Reason: why}, Final: topology.FinalRequeue, Hold: hold,
	}
}

// missingHold is how long a message whose body fitted neither into memory nor into a file is held at most: a file may
// have room by then, which nothing announces.
const missingHold = 30 * time.Second

// holdMissing requeues such a message when there is memory for it, and reports it.
func (c *Consumer) holdMissing(d delivery) {
	c.missing.Do(func(suppressed int) {
		c.o.Logger.Error("no memory for a message", "message_id", d.MessageId, "size", d.Missing,
			"error", d.MissingWhy, "retry_in", c.o.MissingHold, "suppressed", suppressed)
	})
	c.oversized.Store(&oversized{until: time.Now().Add(2 * c.o.MissingHold), text: fmt.Sprintf(
		"there is no memory for a message of %d bytes (SIDECAR_MEMORY), and no file for it either: %v; it is tried again "+
			"when memory is free, after %v at the latest",
		d.Missing, d.MissingWhy, c.o.MissingHold)})
	var r record
	r.begin(d)
	r.read(c.o.Plan)
	if !errors.Is(d.MissingWhy, broker.ErrNoMemory) { // without headers the message's trace is not known
		c.trace(&r)
	}
	d.session.settle(&r, requeued(message.ReasonTooLarge, c.o.MissingHold))
}

// oversized is the warning about such a message until its next delivery.
type oversized struct {
	until time.Time
	text  string
}

// Oversized returns a warning while there is a message for which there is neither memory nor a file; "" otherwise.
func (c *Consumer) Oversized() string {
	if o := c.oversized.Load(); o != nil && time.Now().Before(o.until) {
		return o.text
	}
	return ""
}
