package consume

import (
	"context"
	"hash/maphash"
	"log/slog"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

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
	id       uint64          // of equal messages, see identify
	unsure   bool            // id is only that of the beginning of its body
	passed   bool            // by recall
	counted  bool            // order has counted the failure
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
		session: d.session, delivery: d.Delivery, tag: d.DeliveryTag, held: d.held,
		m: message.Message{MessageID: d.MessageId},
	}
}

// read makes the delivery's bytes and headers a Message.
func (r *record) read(plan *topology.Plan) *message.Message {
	r.identify(plan)
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

// identify is read without what this process remembers of the message.
func (r *record) identify(plan *topology.Plan) {
	r.delivery.DecodeHeaders()
	plan.Read(&r.m, &r.delivery.Delivery)
	r.id = identify(&r.m)
	r.unsure = len(r.m.Body) > maxHashed && r.m.MessageID == ""
}

// retain returns what the end of the delivery needs, for a goroutine that ends it later. Of the message only
// publications remain: the memory of its body and headers may be given back long before the end.
func (r *record) retain() *record {
	kept := r.keep()
	kept.m = message.Message{
		MessageID: kept.m.MessageID, CorrelationID: kept.m.CorrelationID, RetryCount: kept.m.RetryCount,
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

func (c *Consumer) log(r *record, v *message.Verdict) {
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
	ctx := context.Background()
	if !c.o.Logger.Enabled(ctx, level) {
		return
	}
	o := &v.Cause
	a := make([]slog.Attr, 0, 16)
	a = append(a,
		slog.String("message_id", r.m.MessageID),
		slog.String("correlation_id", r.m.CorrelationID),
		slog.String("routing_key", r.m.RoutingKey),
		slog.Int("status", o.Status),
		slog.Int("retry_count", r.m.RetryCount),
		slog.String("outcome", v.Action.String()),
		slog.String("reason", v.Reason.String()),
		slog.Float64("duration_ms", float64(o.Elapsed)/float64(time.Millisecond)), slog.String("trace_id", r.span.TraceID()))
	if v.Reason == message.ReasonMaxRetries {
		a = append(a, slog.String("event", "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"))
	}
	if o.URL != "" {
		a = append(a, slog.String("url", o.URL))
	}
	if o.Failure != message.FailureNone {
		a = append(a, slog.String("failure", o.Failure.String()))
	}
	if o.Err != nil {
		a = append(a, slog.String("error", o.Err.Error()))
	}
	if o.Detail != "" {
		a = append(a, slog.String("detail", o.Detail))
	}
	if o.Remembered {
		a = append(a, slog.Bool("remembered", true))
	}
	if o.Unknown {
		a = append(a, slog.Bool("unknown_disposition", true))
	}
	c.o.Logger.LogAttrs(ctx, level, "settled", a...)
}

var seed = maphash.MakeSeed()

// maxHashed is how many bytes of a body are part of the hash. A larger body may be in a file because it does not fit
// into memory, and to read it brings it there.
const maxHashed = 1 << 20

// identify returns a hash of what a further delivery of the message does not change. x-death is part of it: a message
// that was rejected or published to wait, and returns, must not be taken for the delivery that it replaced.
func identify(m *message.Message) uint64 {
	sum := maphash.Bytes(seed, m.Body[:min(len(m.Body), maxHashed)]) + uint64(len(m.Body))
	for _, s := range [...]string{m.MessageID, m.CorrelationID, m.Type, m.Exchange, m.RoutingKey} {
		sum = sum*31 + maphash.String(seed, s)
	}
	return (sum*31+uint64(m.Timestamp.Unix()))*31 + hash(m.Headers) // #nosec G115 -- any bits
}

// hash is that of a value in a header table.
func hash(value any) (sum uint64) {
	switch v := value.(type) {
	case amqp.Table: // in any order
		for name, value := range v {
			if name != message.HeaderDeliveryCount && name != "x-acquired-count" { // the broker changes them
				sum += (maphash.String(seed, name) | 1) * (hash(value) | 1)
			}
		}
	case []any:
		for _, value := range v {
			sum = sum*31 + hash(value)
		}
	case []byte:
		sum = maphash.Bytes(seed, v)
	default:
		sum = maphash.Comparable(seed, v)
	}
	return sum
}
