package consume

import (
	"fmt"
	"runtime/debug"
	"strings"

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

// decode makes the delivery's bytes and headers the Message of a. Until the headers are read it has to name the
// message, and nothing of another one may be left.
func (c *Consumer) decode(a *attempt, d delivery) {
	*a = attempt{delivery: d, m: message.Message{MessageID: d.MessageId}}
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

// unseen is what is known of a delivery that no worker has taken.
func (c *Consumer) unseen(d delivery) memory.Known {
	if d.place != nil {
		return d.place.known
	}
	return c.memory.Of(d.Delivery)
}

// recall takes what is known of the message. Headers can say less than before: the broker replaces a count that another
// consumer wrote.
func (c *Consumer) recall(a *attempt) {
	if a.place != nil {
		a.known = a.place.known
	} else {
		a.known = c.memory.Seen(a.Delivery)
	}
	a.m.RetryCount = max(a.m.RetryCount, a.known.Failed)
}

// retain makes a what the end of the delivery needs. Of the message only what log says and publications remain: the
// memory of its body and headers may be given back long before the end.
func (a *attempt) retain() {
	a.m = message.Message{
		MessageID: a.m.MessageID, CorrelationID: a.m.CorrelationID, Type: a.m.Type, RetryCount: a.m.RetryCount,
		RoutingKey: strings.Clone(a.m.RoutingKey), // it may be a part of the headers, which are one text
	}
	a.span.Detach()
}

// strip is retain, and gives back the memory of the body and the headers: neither is used after this, nor is a
// publication of the message.
func (a *attempt) strip() {
	a.retain()
	a.Strip()
}

// guard returns the settlement that step makes for the message. A panic over it does not end the process: it is logged,
// and the message is requeued after a while; ok is false then.
func (c *Consumer) guard(a *attempt, step func() topology.Settlement) (by topology.Settlement, ok bool) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(a.m.MessageID, p)
			by, ok = c.requeued(message.ReasonPanic, topology.KindHold, c.o.Policy.PanicHold), false
		}
	}()
	return step(), true
}

func (c *Consumer) logPanic(id string, p any) {
	c.o.Logger.Error("panic", "message_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}
