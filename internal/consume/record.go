package consume

import (
	"context"
	"log/slog"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/crash"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// eventMaxRetries is the seed's name for a message that has used up its retries.
const eventMaxRetries = "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"

// record is what is known of one message at its end, and what is written down about it: one log line, the end of its
// span, counters.
type record struct {
	m    message.Message
	s    topology.Settlement
	span telemetry.Span

	suspicion *crash.Claim // that this message ended an earlier process; nil when there is none
	reply     string       // where the verdict wants to be told, see message.Reply; "" nowhere
	token     string
	finished  bool             // the delivery's fate has been handed to the settler
	delivery  *broker.Delivery // kept for what has yet to be published of it; nil when nothing has
}

// keep copies what is needed when the rest is done later: the worker reuses its record. The copy owns the delivery.
func (r *record) keep(d *broker.Delivery) *record {
	kept := *r
	kept.finished, kept.delivery = false, d
	kept.m.Body, kept.m.Headers = nil, nil // nothing reads them any more
	return &kept
}

// free gives the memory of the delivery back: nothing of it is published from here on.
func (r *record) free() {
	if r.delivery != nil {
		r.s.Publish, r.s.Detour = nil, nil
		r.delivery.Free()
		r.delivery = nil
	}
}

func (c *Consumer) record(r *record) {
	v := &r.s.Verdict
	if v.Action == message.Ack || v.Action == message.Park || v.Action == message.Discard {
		c.metrics.retries.Observe(float64(r.m.RetryCount))
	}
	c.log(r, v)
	r.span.End(v.Action.String(), v.Reason.String(), nil)
}

func (c *Consumer) log(r *record, v *message.Verdict) {
	level, event := slog.LevelInfo, "settled"
	switch v.Action {
	case message.Ack:
		if v.Reason != message.ReasonForeignRetry { // gone without the app having seen it: somebody may look for it
			level = slog.LevelDebug
		}
	case message.Park, message.Discard:
		level = slog.LevelWarn
		if v.Reason == message.ReasonMaxRetries {
			event = eventMaxRetries
		}
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
		slog.String("queue", r.m.Queue),
		slog.String("message_id", r.m.MessageID),
		slog.String("correlation_id", r.m.CorrelationID),
		slog.String("routing_key", r.m.RoutingKey),
		slog.Int("status", o.Status),
		slog.Int("retry_count", r.m.RetryCount),
		slog.String("outcome", v.Action.String()),
		slog.String("reason", v.Reason.String()),
		slog.Float64("duration_ms", float64(o.Elapsed)/float64(time.Millisecond)),
		slog.String("trace_id", r.span.TraceID()))
	if o.Failure != message.FailureNone {
		a = append(a, slog.String("failure", o.Failure.String()))
	}
	if o.Err != nil {
		a = append(a, slog.String("error", o.Err.Error()))
	}
	if o.Detail != "" {
		a = append(a, slog.String("detail", o.Detail))
	}
	if o.Unknown {
		a = append(a, slog.Bool("unknown_disposition", true))
	}
	c.o.Logger.LogAttrs(ctx, level, event, a...)
}
