package consume

import (
	"sidecar/internal/broker"
	"sidecar/internal/memory"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// delivery is one delivery with the session it came from: it is settled there or not at all.
type delivery struct {
	*broker.Delivery
	session *session
	place   *place // nil: the messages are handled in no order
}

// attempt is one delivery from its arrival to its settlement. It goes by value from its POST on.
type attempt struct {
	delivery
	m       message.Message
	known   memory.Known
	span    telemetry.Span
	checked bool                       // it has waited for a check of the topology
	canary  struct{ to, token string } // waits for the verdict, see message.Reply; to is "" without one
}

// work handles what pump offers, one after the other. The memory of an attempt is reused: the healthy path allocates
// nothing of its own.
func (c *Consumer) work() {
	var a attempt
	for o := range c.offered {
		messages := o.messages()
		if o.batch != nil {
			c.handleBatch(o.batch)
		} else {
			c.handle(&a, o.delivery)
			a = attempt{} // the next message may be long in coming
		}
		c.counts.posts.Add(-1)
		c.counts.inflight.Add(-int64(messages))
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
// a worker (its session is cancelled, there is no memory for its body) ends there, too.
func (c *Consumer) handle(a *attempt, d delivery) {
	by, _ := c.guard(a, func() topology.Settlement {
		c.read(a, d)
		return c.try(a)
	})
	d.session.settle(*a, by)
}

// decode makes the delivery's bytes and headers the Message of a. Until the headers are read it has to name the
// message, and nothing of another one may be left.
func (c *Consumer) decode(a *attempt, d delivery) {
	*a = attempt{delivery: d, known: c.knownOf(d), m: message.Message{MessageID: d.MessageId}}
	d.DecodeHeaders()
	c.o.Plan.Read(&a.m, &d.Delivery.Delivery)
	a.m.Lost = d.session.done
	a.canary.to, a.canary.token = message.Reply(a.m.Headers)
}

// read is decode, and recalls what is known of the message.
func (c *Consumer) read(a *attempt, d delivery) {
	c.decode(a, d)
	c.recall(a)
}

// knownOf is what is known of a delivery without asking: in order that is what was known when it became the first.
func (c *Consumer) knownOf(d delivery) memory.Known {
	if d.place != nil {
		return d.place.known
	}
	return c.memory.Of(d.Delivery)
}

// recall takes what is known of the message. Headers can say less than before: the broker replaces a count that another
// consumer wrote.
func (c *Consumer) recall(a *attempt) {
	if a.place == nil {
		a.known = c.memory.Seen(a.Delivery)
	}
	a.m.RetryCount = max(a.m.RetryCount, a.known.Failed)
}

// try returns the settlement by an attempt, or by an earlier one on a lost session. While that is under way the message
// waits for it.
func (c *Consumer) try(a *attempt) topology.Settlement {
	if a.known.Wait != nil {
		return unattempted(message.ReasonUndispatched, topology.SettleEarlier)
	}
	return c.decide(a, c.dispatch(a))
}

// decide returns the settlement of a message by what its attempt came to. The session's plan fits what the broker has;
// Options.Plan is what was asked for.
func (c *Consumer) decide(a *attempt, o message.Outcome) topology.Settlement {
	return a.session.plan().Settlement(&a.m, c.o.Policy.Decide(&a.m, o))
}

// dispatch POSTs the message, unless it must not be POSTed: then the outcome says why.
func (c *Consumer) dispatch(a *attempt) message.Outcome {
	a.session.memory.Begin(&a.known)
	known := a.known.Outcome              // also if the session has gone: settling puts it back
	if known == nil && a.session.gone() { // the broker delivers the message again: a POST now would double it
		return message.Outcome{Failure: message.FailureUndispatched}
	}
	c.trace(a)
	switch m := &a.m; {
	case known != nil:
		c.metrics.remembered.Inc()
		o := *known
		o.Remembered, o.Elapsed = true, 0
		return o
	case c.o.Plan.Foreign(&a.Delivery.Delivery):
		return message.Outcome{Failure: message.FailureForeign}
	case c.o.Flow.Defers(m):
		return message.Outcome{Failure: message.FailureDeferred}
	}
	a.m.Trace = message.TraceContext(a.span.Client())
	o := c.o.Dispatcher.Dispatch(c.stop.interrupt, &a.m)
	a.span.ClientEnd(o.Failure != message.FailureNoRoute, o.Status, o.Failure.String(), o.URL)
	c.o.Flow.Report(&a.m, &o)
	c.measure(o.Elapsed)
	return o
}

// trace begins the span of a message. One that was in a batch that failed has it already.
func (c *Consumer) trace(a *attempt) {
	if m := &a.m; a.span.TraceID() == "" {
		a.span = c.o.Tracing.Process(telemetry.CarrierFrom(m.Headers), telemetry.Attrs{
			MessageID: m.MessageID, CorrelationID: m.CorrelationID, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
			BodySize: len(m.Body) + int(a.Missing), RetryCount: m.RetryCount, Redelivered: m.Redelivered,
			Timestamp: m.Timestamp, DeliveryTag: a.DeliveryTag, Broker: a.session.sub,
		})
	}
}

// settle carries a settlement out: at once where it is a frame to the broker, on a goroutine of its own where it waits
// for a confirm or for time to pass.
func (s *session) settle(a attempt, by topology.Settlement) {
	if by.Pause > 0 {
		s.c.o.Flow.PauseFor(by.Pause)
	}
	if s.gone() { // the message is delivered again, and that delivery decides: neither park nor copy it
		why := message.ReasonSessionLost
		if by.Verdict.Action == message.Release {
			why = by.Verdict.Reason
		}
		s.end(a, by.Released(why))
		return
	}
	switch by.Kind {
	case topology.SettlePublish:
		a.retain()
		s.beside(a, by, s.replace, s.end)
	case topology.SettleHold:
		s.delay(a, by)
	case topology.SettleRoom:
		s.beside(a, by, s.awaitMemory, s.end)
	case topology.SettleRetreat:
		s.beside(a, by, s.retreat, s.end)
	case topology.SettleBehind:
		a.retain()
		s.beside(a, by, s.detour, s.end)
	case topology.SettleAgain:
		s.again(a, by)
	case topology.SettleEarlier:
		s.beside(a, by, s.awaitEarlier, s.settle)
	default:
		if check := s.unchecked(&a, &by); check != nil {
			s.beside(a, by, check, s.settle)
		} else {
			s.end(a, by)
		}
	}
}

// end ends a delivery: it writes the record, replies the verdict to a canary, and hands the settlement to the settler.
// Every delivery ends here, once; an attempt in order that another one follows ends in again. The record comes first: a
// requeued message can be delivered and recorded again before this goroutine runs on.
func (s *session) end(a attempt, by topology.Settlement) {
	v := &by.Verdict
	s.c.write(&a, v, finalNames[by.Final])
	if by.Final == topology.FinalDelay {
		a.known.Fail(a.m.RetryCount)
	}
	e := ending{
		tag: a.DeliveryTag, action: v.Action, reason: v.Reason, final: by.Final, known: a.known, outcome: lasting(&by),
	}
	if e.returns() {
		s.memory.Returns(e.known, e.final, e.outcome)
	}
	a.Free() // what is written to the broker does not refer to the message
	s.hand(e)
	if a.place != nil { // behind hand: the acks of a key leave in its order
		s.c.order.end(a.place, by.Final != topology.FinalRequeue)
	}
}

func (s *session) hand(e ending) {
	s.settler.endings <- e
	s.outstanding.Done()
}
