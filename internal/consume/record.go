package consume

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// record is one message from its delivery to its settlement, and what is written down about it at the end: one log
// line, its span, counters.
type record struct {
	session  *session
	delivery *broker.Delivery // nil when its memory has been given back
	tag      uint64
	held     *entry // of a delivery in order
	failed   int    // attempts, where this process remembers some
	known    attempted
	queue    int             // attempts.queue at the delivery
	id       uint64          // of equal messages: broker.Delivery.Identity
	passed   bool            // by recall
	checked  bool            // it has waited for a check of the topology
	counted  bool            // order has counted the failure
	parks    bool            // the attempt ended in a park, whether or not that was carried out
	verdict  <-chan struct{} // see recall
	done     bool            // for this goroutine: the delivery has ended, or another goroutine has the record

	m            message.Message
	span         telemetry.Span
	reply, token string // of the canary that waits for the verdict, see message.Reply; "" without one
}

// begin makes r the record of a delivery. Nothing of the one before may be left: until the headers are read the record
// has to name this message.
func (r *record) begin(d delivery) {
	*r = record{
		session: d.session, delivery: d.Delivery, tag: d.DeliveryTag, held: d.held, id: d.Identity,
		m: message.Message{MessageID: d.MessageId},
	}
}

// read makes the delivery's bytes and headers a Message.
func (r *record) read(plan *topology.Plan) *message.Message {
	r.delivery.DecodeHeaders()
	plan.Read(&r.m, &r.delivery.Delivery)
	switch a := r.session.c.attempts; {
	case r.held != nil:
		r.m.RetryCount += r.held.failed
	case a != nil: // headers can say less than before: the broker replaces a count that another consumer wrote
		a.take(r)
		r.m.RetryCount = max(r.m.RetryCount, r.failed)
	}
	r.m.Lost = r.session.done
	r.reply, r.token = message.Reply(r.m.Headers)
	return &r.m
}

// retain returns what the end of the delivery needs, for a goroutine that ends it later. Of the message only what log
// says and publications remain: the memory of its body and headers may be given back long before the end.
func (r *record) retain() *record {
	kept := r.keep()
	kept.m = message.Message{
		MessageID: kept.m.MessageID, CorrelationID: kept.m.CorrelationID, Type: kept.m.Type, RetryCount: kept.m.RetryCount,
		RoutingKey: strings.Clone(kept.m.RoutingKey), // it may be a part of the headers, which are one text
	}
	kept.span.Detach()
	return kept
}

// keep is retain with the message. It clears r: a worker that waits for its next message must not refer to memory that
// the end of this one gives back.
func (r *record) keep() *record {
	kept := *r
	*r = record{done: true}
	return &kept
}

// strip gives back the memory of the body and the headers: neither is used after this, nor is a publication of the
// message.
func (r *record) strip() {
	if r.delivery != nil {
		r.m.Body, r.m.Headers = nil, nil
		r.delivery.Strip()
	}
}

// recycle gives the memory of the delivery back: neither the message nor a publication of it is used after this.
func (r *record) recycle() {
	if r.delivery != nil {
		r.m.Body, r.m.Headers = nil, nil
		r.delivery.Free()
		r.delivery = nil
	}
}

// write writes the record of an attempt, and replies the verdict to a canary. operation settles the delivery.
func (c *Consumer) write(r *record, v *message.Verdict, operation string) {
	switch v.Action {
	case message.Ack, message.Park, message.Discard:
		c.metrics.retries.Observe(float64(r.m.RetryCount))
	}
	switch v.Reason {
	case message.ReasonUndispatched: // nothing happened to the message
		c.returned.Add(1)
	case message.ReasonDeferred: // nor to this one, and there are hundreds of them in a second
	case message.ReasonShutdown:
		c.cut.Add(1)
		c.log(r, v)
	default:
		c.log(r, v)
	}
	r.span.Settle(operation)
	r.span.End(v.Action.String(), v.Reason.String())
	if r.reply != "" {
		c.replyVerdict(r, v)
	}
}

var finalNames = [...]string{topology.FinalAck: "ack", topology.FinalRequeue: "nack", topology.FinalReject: "reject",
	topology.FinalDelay: "reject"}

// levelOf returns the level of the log line about a verdict.
func levelOf(v *message.Verdict) slog.Level {
	level := slog.LevelInfo
	switch v.Action {
	case message.Ack:
		if v.Cause.Posted() { // an operator may ask why a message was acked without a POST
			level = slog.LevelDebug
		}
	case message.Park, message.Discard:
		level = slog.LevelWarn
	}
	if v.Cause.Unknown {
		level = max(level, slog.LevelWarn)
	}
	return level
}

func (c *Consumer) log(r *record, v *message.Verdict) {
	ctx, level := context.Background(), levelOf(v)
	if !c.o.Logger.Enabled(ctx, level) {
		return
	}
	o := &v.Cause
	a := make([]slog.Attr, 0, 16)
	a = append(a,
		slog.String("message_id", r.m.MessageID),
		slog.String("correlation_id", r.m.CorrelationID),
		slog.String("routing_key", r.m.RoutingKey),
		slog.String("type", r.m.Type),
		slog.Int("retry_count", r.m.RetryCount),
		slog.String("outcome", v.Action.String()),
		slog.String("reason", v.Reason.String()),
		slog.Float64("duration_ms", float64(o.Elapsed)/float64(time.Millisecond)), slog.String("trace_id", r.span.TraceID()))
	if o.Status != 0 {
		a = append(a, slog.Int("status", o.Status))
	}
	if v.Reason == message.ReasonMaxRetries {
		a = append(a, slog.String("event", "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"))
	}
	for _, text := range [...][2]string{
		{"url", o.URL}, {"location", o.Location}, {"failure", o.Failure.String()}, {"detail", o.Detail},
	} {
		if text[1] != "" {
			a = append(a, slog.String(text[0], text[1]))
		}
	}
	if o.Err != nil {
		a = append(a, slog.String("error", o.Err.Error()))
	}
	if o.Remembered {
		a = append(a, slog.Bool("remembered", true))
	}
	if o.Unknown {
		a = append(a, slog.Bool("unknown_disposition", true))
	}
	c.o.Logger.LogAttrs(ctx, level, "settled", a...)
}
