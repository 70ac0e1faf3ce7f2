package telemetry

import (
	"context"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Batch begins the span of one POST of n messages, a CLIENT; ClientEnd ends it, and Carrier is the trace context that
// goes with the request. It is a child of the span of a single message. Of several it begins a trace, with links to the
// spans of the messages, and these have a link to it: by default the SDK keeps only 128 links of a span. While tracing
// is off, message is not called and the trace context is empty.
func (t *Tracing) Batch(n int, message func(i int) *Span) Span {
	if t == nil {
		return Span{}
	}
	ctx := trace.ContextWithSpan(context.Background(), message(0).root)
	for i := range n {
		if n > 1 && message(i).root.SpanContext().IsSampled() { // a new trace of messages that are not would be sampled
			ctx = context.Background()
		}
	}
	_, post := t.tracer.Start(ctx, "POST", t.client...) //nolint:spancheck // ClientEnd ends it
	if n > 1 && post.IsRecording() {
		post.SetAttributes(semconv.MessagingBatchMessageCount(n))
		for i := range n {
			root := message(i).root
			post.AddLink(trace.Link{SpanContext: root.SpanContext()})
			root.AddLink(trace.Link{SpanContext: post.SpanContext()})
		}
	}
	return Span{tracing: t, child: post, out: carrierOf(post.SpanContext(), "")} //nolint:spancheck // as above
}
