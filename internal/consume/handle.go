package consume

import (
	"fmt"
	"runtime/debug"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/crash"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// panicHold delays the requeue of a message that made the sidecar panic, so that it does not loop.
const panicHold = 5 * time.Second

// afterPanic returns the settlement of such a message.
func (c *Consumer) afterPanic() topology.Settlement {
	return topology.Settlement{
		Verdict: message.Verdict{Action: message.Requeue, Reason: message.ReasonPanic},
		Final:   topology.FinalRequeue, Hold: c.o.PanicHold,
	}
}

// missingHold is how long a message is held that fitted neither into memory nor into a file, before it is given back to be
// tried again: each try is the transfer of all of it.
const missingHold = 30 * time.Second

// withoutBody returns the settlement of such a message, and reports it.
func (c *Consumer) withoutBody(d *broker.Delivery) topology.Settlement {
	c.unkept.Do(func(suppressed int) {
		c.o.Logger.Error("no memory for a message", "queue", c.o.Plan.Queue, "message_id", d.MessageId, "size", d.Missing,
			"error", d.MissingWhy, "retry_after", c.o.MissingHold, "suppressed", suppressed)
	})
	c.oversized.Store(&oversized{until: time.Now().Add(2 * c.o.MissingHold), text: fmt.Sprintf(
		"there is no memory for a message of %d bytes (SIDECAR_MEMORY), and no file for it either: %v; it is tried again every %v", d.Missing, d.MissingWhy, c.o.MissingHold)})
	return topology.Settlement{
		Verdict: message.Verdict{Action: message.Requeue, Reason: message.ReasonTooLarge},
		Final:   topology.FinalRequeue, Hold: c.o.MissingHold,
	}
}

// oversized is what is reported of such a message until it is tried again.
type oversized struct {
	until time.Time
	text  string
}

// Oversized says that there is a message for which there is neither memory nor a file, and why; "" when there was none lately.
func (c *Consumer) Oversized() string {
	if o := c.oversized.Load(); o != nil && time.Now().Before(o.until) {
		return o.text
	}
	return ""
}

// worker takes one message after the other. Its record is reused: the healthy path allocates nothing of its own.
type worker struct {
	c       *Consumer
	rec     record
	settled bool         // the current delivery's fate has been handed on
	watch   *crash.Watch // nil when crashes are not counted
	met     bool         // watch knows the current message
}

func (w *worker) run() {
	for d := range w.c.work {
		w.guarded(d)
		w.c.inflight.Add(-1)
		select {
		case w.c.freed <- struct{}{}:
		default:
		}
	}
}

// guarded keeps a panic over one message from taking the others along.
func (w *worker) guarded(d delivery) {
	w.settled, w.met, w.rec.suspicion = false, false, nil
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		w.c.panicked(d.MessageId, p)
		if !w.settled && !w.countPanic(d) {
			w.rec.s = w.c.afterPanic()
			d.run.sleep(d.DeliveryTag, w.rec.keep(d.Delivery))
		}
	}()
	w.handle(d)
}

// panicked writes down that the sidecar failed over a message. It belongs into the deferred function that recovered.
func (c *Consumer) panicked(messageID string, p any) {
	c.o.Logger.Error("panic", "queue", c.o.Plan.Queue, "message_id", messageID,
		"panic", fmt.Sprint(p), "stack", string(debug.Stack()))
}

// handle is the line every message takes.
func (w *worker) handle(d delivery) {
	c, m := w.c, &w.rec.m
	d.DecodeHeaders()
	m.FromDelivery(&d.Delivery.Delivery, c.o.Plan.Queue, c.o.Plan.MaxRetries)
	w.rec.reply, w.rec.token = message.Reply(m.Headers)
	if d.run.gone() { // the broker delivers it again: POSTing it now would double it
		w.settled = true
		d.run.finish(event{d.DeliveryTag, message.Release, message.ReasonUndispatched, finalRequeue})
		w.free(d)
		return
	}
	if d.Missing > 0 {
		w.rec.span = telemetry.Span{}
		w.rec.s = c.withoutBody(d.Delivery)
		w.settled = true
		d.run.sleep(d.DeliveryTag, w.rec.keep(d.Delivery))
		return
	}
	w.rec.span = c.o.Tracing.Process(telemetry.CarrierFrom(m.Headers), telemetry.ProcessAttrs{
		MessageID: m.MessageID, CorrelationID: m.CorrelationID, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		BodySize: len(m.Body), RetryCount: m.RetryCount, Redelivered: m.Redelivered,
	})
	m.Trace = message.TraceContext(w.rec.span.Client())

	plan := d.run.plan.Load()
	if plan.Foreign(m) {
		w.rec.s = plan.Settlement(m, message.Verdict{Action: message.Ack, Reason: message.ReasonForeignRetry})
		w.settled = true
		w.settle(d)
		return
	}
	if w.watch != nil && !w.admit(d, plan) {
		return
	}
	o := c.o.Dispatcher.Dispatch(c.interrupt, m)
	w.rec.span.ClientEnd(o.Status, o.Failure.String())
	c.o.Flow.Report(m, &o)
	v := c.o.Policy.Decide(m, o)
	if w.watch != nil {
		w.countAppCrash(&v)
	}
	w.rec.s = plan.Settlement(m, v)
	if pause := max(w.rec.s.Pause, v.Pause); pause > 0 {
		c.o.Flow.PauseFor(pause)
	}
	if v.Reason == message.ReasonShutdown {
		c.cut.Add(1)
	}
	if w.watch != nil {
		w.watch.Leave(w.comesBack())
	}
	w.settled = true
	w.settle(d)
}

// settle carries the settlement out: at once where it is a frame to the broker, beside the workers where it has to
// wait for a confirm or for time to pass.
func (w *worker) settle(d delivery) {
	r, s, tag := d.run, &w.rec.s, d.DeliveryTag
	switch {
	case r.gone(): // what became of this message is the next delivery's business: neither park nor copy it
		r.abandon(tag, &w.rec, message.ReasonSessionLost)
	case s.Publish != nil:
		kept := w.rec.keep(d.Delivery)
		r.beside(tag, kept, func() { r.replace(tag, kept) })
		return
	case s.Hold > 0 || s.Jitter > 0:
		r.sleep(tag, w.rec.keep(d.Delivery))
		return
	case s.Verdict.Reason == message.ReasonAppDown:
		w.c.record(&w.rec)
		r.release(tag)
	default:
		r.finishWith(tag, &w.rec)
	}
	w.free(d)
}

// free gives the memory of a delivery back that nothing refers to: no publication was made of it, and its POST is over.
func (w *worker) free(d delivery) {
	w.rec.m.Body = nil
	d.Free()
}
