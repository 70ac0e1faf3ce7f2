package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Span follows one message from delivery to settlement: the CONSUMER span around all of it and the one child that is
// open at a time. It is a value, meant to live in the caller's own per-message memory, and is used by one goroutine at
// a time. The zero Span, like any Span made while tracing is off, takes every call and does nothing.
type Span struct {
	tracing *Tracing // nil when off
	root    trace.Span
	child   trace.Span // nil when none is open
	out     Carrier
}

// ProcessAttrs is what a message's span says about it.
type ProcessAttrs struct {
	MessageID, CorrelationID string
	Exchange, RoutingKey     string // of this delivery
	BodySize, RetryCount     int
	Redelivered              bool
}

// Process begins a message's span. Its parent is the message's own trace context when that is valid; otherwise a new
// trace begins. While tracing is off nothing is recorded and the context to pass on is the message's own, unchanged,
// or a new one with the sampled flag off.
func (t *Tracing) Process(in Carrier, a ProcessAttrs) Span {
	in = in.valid()
	if t == nil || t.tracer == nil {
		if in.Traceparent == "" {
			in.Traceparent = newTraceparent()
		}
		return Span{out: in}
	}
	return t.begin(in, &a)
}

func (t *Tracing) begin(in Carrier, a *ProcessAttrs) Span {
	ctx := context.Background()
	if in.Traceparent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parseTraceparent(in.Traceparent, in.Tracestate))
	}
	_, root := t.tracer.Start(ctx, t.processName, t.process...)
	if root.IsRecording() {
		root.SetAttributes(
			semconv.MessagingDestinationName(validText(destinationName(a.Exchange, a.RoutingKey, t.queue))),
			semconv.MessagingMessageBodySize(a.BodySize),
			attribute.Int("sidecar.retry_count", a.RetryCount),
			attribute.Bool("sidecar.redelivered", a.Redelivered),
		)
		setText(root, semconv.MessagingRabbitMQDestinationRoutingKeyKey, a.RoutingKey)
		setText(root, semconv.MessagingMessageIDKey, a.MessageID)
		setText(root, semconv.MessagingMessageConversationIDKey, a.CorrelationID)
	}
	return Span{tracing: t, root: root, out: carrierOf(root.SpanContext(), in.Baggage)}
}

func carrierOf(sc trace.SpanContext, baggage string) Carrier {
	return Carrier{
		Traceparent: formatTraceparent(sc.TraceID(), sc.SpanID(), sc.TraceFlags()),
		Tracestate:  sc.TraceState().String(),
		Baggage:     baggage,
	}
}

// TraceID is the trace id that the app sees, as 32 hex digits, on or off; "" for the zero Span.
func (s *Span) TraceID() string {
	if len(s.out.Traceparent) < traceIDEnd {
		return ""
	}
	return s.out.Traceparent[traceIDStart:traceIDEnd]
}

// End ends the message's span, and a child that is still open. outcome and reason are the verdict's closed sets; err
// is why the settlement failed, if it did.
func (s *Span) End(outcome, reason string, err error) {
	if s.tracing == nil {
		return
	}
	s.closeChild()
	if s.root.IsRecording() {
		s.root.SetAttributes(attribute.String("sidecar.outcome", outcome), attribute.String("sidecar.reason", reason))
		switch {
		case err != nil:
			fail(s.root, err)
		case outcome == "retry" || outcome == "park":
			s.root.SetAttributes(semconv.ErrorTypeKey.String(reason))
			s.root.SetStatus(codes.Error, "")
		}
	}
	s.root.End()
	s.tracing = nil // a second End, or a child after it, is a no-op
}
