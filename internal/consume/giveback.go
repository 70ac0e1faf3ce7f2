package consume

import (
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

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
			by, ok = c.requeued(message.ReasonPanic, topology.SettleHold, c.o.Policy.PanicHold), false
		}
	}()
	return step(), true
}

func (c *Consumer) logPanic(id string, p any) {
	c.o.Logger.Error("panic", "message_id", id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// requeued is the settlement of a message that was not judged: it is tried again after hold.
func (c *Consumer) requeued(why message.Reason, kind topology.SettlementKind, hold time.Duration) topology.Settlement {
	if c.order != nil && kind == topology.SettleHold {
		kind = topology.SettleAgain
	}
	return topology.Settlement{
		Verdict: message.Verdict{Action: message.Requeue, Reason: why}, Kind: kind, Final: topology.FinalRequeue, Hold: hold,
	}
}

// unattempted is the settlement of a message that goes back without an attempt.
func unattempted(why message.Reason, kind topology.SettlementKind) topology.Settlement {
	by := topology.Settlement{}.Released(why)
	by.Kind = kind
	return by
}
