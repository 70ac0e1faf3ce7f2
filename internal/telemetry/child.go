package telemetry

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Client begins the span of the POST and returns the context that goes to the app with it.
func (s *Span) Client() Carrier {
	if s.tracing == nil {
		return s.out
	}
	s.open("POST", s.tracing.client...)
	return carrierOf(s.child.SpanContext(), s.out.Baggage)
}

// ClientEnd ends the span of the POST. status is 0 without an answer; failure is then its class from a closed set.
func (s *Span) ClientEnd(status int, failure string) {
	if s.child == nil {
		return
	}
	if s.child.IsRecording() {
		if status != 0 {
			s.child.SetAttributes(semconv.HTTPResponseStatusCode(status))
		}
		if failure == "" && (status < 100 || status >= 400) {
			failure = strconv.Itoa(status)
		}
		if failure != "" {
			s.child.SetAttributes(semconv.ErrorTypeKey.String(failure))
			s.child.SetStatus(codes.Error, "")
		}
	}
	s.closeChild()
}

// Send begins the span of a publish that moves the message to dest, an exchange or queue name.
func (s *Span) Send(dest string) {
	if s.tracing != nil {
		s.open("send "+dest, s.tracing.sendAttrs, trace.WithSpanKind(trace.SpanKindProducer),
			trace.WithAttributes(semconv.MessagingDestinationName(dest)))
	}
}

// SendEnd ends the span of the publish; nil means confirmed and not returned.
func (s *Span) SendEnd(err error) { s.endChild(err) }

// Settle begins the span of the settlement; op is ack, nack or reject.
func (s *Span) Settle(op string) {
	if s.tracing != nil {
		s.open("settle "+s.tracing.queue, s.tracing.settle...)
		s.child.SetAttributes(semconv.MessagingOperationName(op))
	}
}

// SettleEnd ends the span of the settlement.
func (s *Span) SettleEnd(err error) { s.endChild(err) }

func (s *Span) open(name string, o ...trace.SpanStartOption) {
	s.closeChild()
	ctx := trace.ContextWithSpan(context.Background(), s.root)
	_, s.child = s.tracing.tracer.Start(ctx, name, o...) //nolint:spancheck // closeChild ends it
}

func (s *Span) endChild(err error) {
	if s.child != nil && err != nil {
		fail(s.child, err)
	}
	s.closeChild()
}

func (s *Span) closeChild() {
	if s.child != nil {
		s.child.End()
		s.child = nil
	}
}
