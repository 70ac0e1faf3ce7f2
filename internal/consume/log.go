package consume

import (
	"context"
	"log/slog"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// write writes the record of an attempt, and replies the verdict to a canary. operation settles the delivery. A panic
// over it is logged: the delivery ends.
func (c *Consumer) write(a *attempt, v *message.Verdict, operation string) {
	defer func() {
		if p := recover(); p != nil {
			c.logPanic(a.m.MessageID, p)
		}
	}()
	switch v.Action {
	case message.Ack, message.Park, message.Discard:
		c.metrics.retries.Observe(float64(a.m.RetryCount))
	}
	switch v.Reason {
	case message.ReasonUndispatched: // nothing happened to the message
		c.counts.returned.Add(1)
	case message.ReasonDeferred: // nor to this one, and there are hundreds of them in a second
	case message.ReasonShutdown:
		c.counts.cut.Add(1)
		c.log(a, v)
	default:
		c.log(a, v)
	}
	a.span.Settle(operation)
	a.span.End(v.Action.String(), v.Reason.String())
	if a.canary.to != "" {
		c.replyVerdict(a, v)
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

func (c *Consumer) log(a *attempt, v *message.Verdict) {
	ctx, level := context.Background(), levelOf(v)
	if !c.o.Logger.Enabled(ctx, level) {
		return
	}
	o := &v.Cause
	attrs := make([]slog.Attr, 0, 16)
	attrs = append(attrs,
		slog.String("message_id", a.m.MessageID),
		slog.String("correlation_id", a.m.CorrelationID),
		slog.String("routing_key", a.m.RoutingKey),
		slog.String("type", a.m.Type),
		slog.Int("retry_count", a.m.RetryCount),
		slog.String("outcome", v.Action.String()),
		slog.String("reason", v.Reason.String()),
		slog.Float64("duration_ms", float64(o.Elapsed)/float64(time.Millisecond)), slog.String("trace_id", a.span.TraceID()))
	if o.Status != 0 {
		attrs = append(attrs, slog.Int("status", o.Status))
	}
	if v.Reason == message.ReasonMaxRetries {
		attrs = append(attrs, slog.String("event", "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED"))
	}
	for _, text := range [...][2]string{
		{"url", o.URL}, {"location", o.Location}, {"failure", o.Failure.String()}, {"detail", o.Detail},
	} {
		if text[1] != "" {
			attrs = append(attrs, slog.String(text[0], text[1]))
		}
	}
	if o.Err != nil {
		attrs = append(attrs, slog.String("error", o.Err.Error()))
	}
	if o.Remembered {
		attrs = append(attrs, slog.Bool("remembered", true))
	}
	if o.Unknown {
		attrs = append(attrs, slog.Bool("unknown_disposition", true))
	}
	c.o.Logger.LogAttrs(ctx, level, "settled", attrs...)
}
