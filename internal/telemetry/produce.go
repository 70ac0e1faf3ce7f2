package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// ProduceAttrs is what the span of a message says that is published for the app.
type ProduceAttrs struct {
	MessageID, CorrelationID string
	Exchange, RoutingKey     string
	BodySize                 int
}

// Produce begins the span of a message that is published for the app: a PRODUCER, continuing the trace that the app
// sent or beginning one. Carrier gives what goes into the message. While tracing is off that is what the app sent, if
// it is valid, and nothing is made up.
func (t *Tracing) Produce(in Carrier, a ProduceAttrs) Span {
	in = in.valid()
	if t == nil || t.tracer == nil {
		return Span{out: in}
	}
	ctx := context.Background()
	if in.Traceparent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parseTraceparent(in.Traceparent, in.Tracestate))
	}
	to := a.Exchange
	if to == "" {
		to = "amq.default"
	}
	_, root := t.tracer.Start(ctx, "send "+validText(to), trace.WithSpanKind(trace.SpanKindProducer), t.sendAttrs)
	if root.IsRecording() {
		root.SetAttributes(semconv.MessagingDestinationName(validText(to)), semconv.MessagingMessageBodySize(a.BodySize))
		setText(root, semconv.MessagingRabbitMQDestinationRoutingKeyKey, a.RoutingKey)
		setText(root, semconv.MessagingMessageIDKey, a.MessageID)
		setText(root, semconv.MessagingMessageConversationIDKey, a.CorrelationID)
	}
	return Span{tracing: t, root: root, out: carrierOf(root.SpanContext(), in.Baggage)}
}

// Carrier is the trace context that goes on with the message.
func (s *Span) Carrier() Carrier { return s.out }

// Produced ends the span of Produce. result is from a closed set; err is why the message was not published, if so.
func (s *Span) Produced(result string, err error) {
	if s.tracing == nil {
		return
	}
	if s.root.IsRecording() {
		s.root.SetAttributes(attribute.String("sidecar.result", result))
		if err != nil {
			fail(s.root, err)
		}
	}
	s.root.End()
	s.tracing = nil
}
