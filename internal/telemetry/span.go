package telemetry

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Span follows one message: the span around all of it and the one child that is open at a time. It is a value, meant to
// live in the caller's own per-message memory, and is used by one goroutine at a time. The zero Span, like any that was
// made while tracing is off, takes every call and does nothing.
type Span struct {
	tracing *Tracing // nil when off
	root    trace.Span
	child   trace.Span // nil when none is open
	out     Carrier
	attrs   Attrs      // while tracing is on
	link    trace.Link // to the message's own trace context, if it is valid
}

// Attrs is what the span of a message says about it.
type Attrs struct {
	MessageID, CorrelationID string
	Timestamp                time.Time
	Exchange, RoutingKey     string
	BodySize                 int
	Broker                   interface{ Server() string } // gives host:port, or "" when it is not known

	DeliveryTag uint64 // of a delivery
	RetryCount  int    // of a delivery
	Redelivered bool   // of a delivery
}

// Process begins the span of a delivered message, a CONSUMER. Its parent is the message's own trace context when that
// is valid; otherwise a new trace begins. While tracing is off nothing is recorded and the context to pass on is the
// message's own, unchanged, or a new one with the sampled flag off.
func (t *Tracing) Process(in Carrier, a Attrs) Span {
	in = in.valid()
	if t == nil {
		return Span{out: in.orNew(&a)}
	}
	s := t.startSpan("process "+t.queue, t.process, in, &a)
	s.root.AddLink(s.link)
	describe(s.root, &a, t.queue, t.queue)
	s.root.SetAttributes(attribute.Int("sidecar.retry_count", a.RetryCount),
		attribute.Bool("sidecar.redelivered", a.Redelivered))
	return s
}

// Produce begins the span of a message that is published for the app: a PRODUCER, continuing the trace that the app
// sent or beginning one. Carrier gives what goes into the message. While tracing is off that is as for Process.
func (t *Tracing) Produce(in Carrier, a Attrs) Span {
	in = in.valid()
	if t == nil {
		return Span{out: in.orNew(&a)}
	}
	to := cmp.Or(a.Exchange, "amq.default")
	s := t.startSpan("send "+validText(to), t.sendAsProducer, in, &a)
	describe(s.root, &a, to, "")
	return s
}

func (t *Tracing) startSpan(name string, o []trace.SpanStartOption, in Carrier, a *Attrs) Span {
	parent := parseTraceparent(in.Traceparent, in.Tracestate)
	_, root := t.tracer.Start(trace.ContextWithRemoteSpanContext(context.Background(), parent), name, o...)
	out := carrierOf(root.SpanContext(), in.Baggage)
	return Span{tracing: t, root: root, out: out, attrs: *a, link: trace.Link{SpanContext: parent}}
}

// describe sets the attributes that the conventions name for a message. template is the part of the destination's name
// that takes few values, and is in the name of the span; queue is "" for a message that is published.
func describe(sp trace.Span, a *Attrs, template, queue string) {
	if !sp.IsRecording() {
		return
	}
	sp.SetAttributes(semconv.MessagingMessageBodySize(a.BodySize))
	setText(sp, semconv.MessagingDestinationNameKey, destinationName(a.Exchange, a.RoutingKey, queue))
	setText(sp, semconv.MessagingDestinationTemplateKey, template)
	setText(sp, semconv.MessagingRabbitMQDestinationRoutingKeyKey, a.RoutingKey)
	setText(sp, semconv.MessagingMessageIDKey, a.MessageID)
	setText(sp, semconv.MessagingMessageConversationIDKey, a.CorrelationID)
	if a.DeliveryTag != 0 {
		sp.SetAttributes(semconv.MessagingRabbitMQMessageDeliveryTag(int(a.DeliveryTag))) // #nosec G115 -- 2^63 is far away
	}
	if a.Broker != nil {
		if host, port, err := net.SplitHostPort(a.Broker.Server()); err == nil {
			n, _ := strconv.Atoi(port)
			sp.SetAttributes(semconv.ServerAddress(host), semconv.ServerPort(n))
		}
	}
}

func carrierOf(sc trace.SpanContext, baggage string) Carrier {
	return Carrier{
		Traceparent: formatTraceparent(sc.TraceID(), sc.SpanID(), sc.TraceFlags()),
		Tracestate:  sc.TraceState().String(),
		Baggage:     baggage,
	}
}

// Detach makes the trace context independent of the message's headers, in whose memory its texts are.
func (s *Span) Detach() {
	s.out = Carrier{strings.Clone(s.out.Traceparent), strings.Clone(s.out.Tracestate), strings.Clone(s.out.Baggage)}
}

// Carrier is the trace context that goes on with the message.
func (s *Span) Carrier() Carrier { return s.out }

// TraceID is the trace id that the app sees, as 32 hex digits, on or off; "" for the zero Span.
func (s *Span) TraceID() string {
	if len(s.out.Traceparent) < traceIDEnd {
		return ""
	}
	return s.out.Traceparent[traceIDStart:traceIDEnd]
}

// Client begins the span of the POST and returns the context that goes to the app with it.
func (s *Span) Client() Carrier {
	if s.tracing == nil {
		return s.out
	}
	s.startChild("POST", s.tracing.client)
	return carrierOf(s.child.SpanContext(), s.out.Baggage)
}

// ClientEnd ends the span of the POST, or drops it if nothing was sent: a span that does not end is not exported.
// status is 0 without an answer; failure is then its class from a closed set. url is where it went, "" for the URL of
// ForQueue.
func (s *Span) ClientEnd(sent bool, status int, failure, url string) {
	if s.child == nil || !sent {
		s.child = nil
		return
	}
	if s.child.IsRecording() {
		if url != "" {
			s.child.SetAttributes(semconv.URLFull(url))
		}
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

// Send begins the span of a publish that moves the message, a CLIENT: the message keeps its own trace context.
func (s *Span) Send(exchange, key string) {
	if s.tracing != nil {
		a, to := s.attrs, cmp.Or(exchange, key) // the queue when it goes there directly
		a.Exchange, a.RoutingKey, a.DeliveryTag, a.Broker = exchange, key, 0, nil
		s.startChild("send "+to, s.tracing.sendAsClient)
		s.child.AddLink(s.link)
		describe(s.child, &a, to, "")
	}
}

// SendEnd ends the span of the publish; nil means confirmed and not returned.
func (s *Span) SendEnd(err error) {
	if s.child != nil && err != nil {
		fail(s.child, err, semconv.ErrorTypeOther)
	}
	s.closeChild()
}

// Settle makes the span of the settlement; op is ack, nack or reject.
func (s *Span) Settle(op string) {
	if s.tracing != nil {
		s.startChild(op+" "+s.tracing.queue, s.tracing.settle)
		describe(s.child, &s.attrs, s.tracing.queue, s.tracing.queue)
		s.child.SetAttributes(semconv.MessagingOperationName(op))
		s.closeChild()
	}
}

func (s *Span) startChild(name string, o []trace.SpanStartOption) {
	s.closeChild()
	ctx := trace.ContextWithSpan(context.Background(), s.root)
	_, s.child = s.tracing.tracer.Start(ctx, name, o...) //nolint:spancheck // closeChild ends it
}

func (s *Span) closeChild() {
	if s.child != nil {
		s.child.End()
		s.child = nil
	}
}

// End ends the span of Process, and a child that is still open. outcome and reason are the verdict's closed sets.
func (s *Span) End(outcome, reason string) {
	if s.tracing == nil {
		return
	}
	s.closeChild()
	if s.root.IsRecording() {
		s.root.SetAttributes(attribute.String("sidecar.outcome", outcome), attribute.String("sidecar.reason", reason))
		if outcome == "retry" || outcome == "park" {
			s.root.SetAttributes(semconv.ErrorTypeKey.String(reason))
			s.root.SetStatus(codes.Error, "")
		}
	}
	s.root.End()
	s.tracing = nil // a second End, or a child after it, is a no-op
}

// Produced ends the span of Produce. result is from a closed set; err is why the message was not published, if so.
func (s *Span) Produced(result string, err error) {
	if s.tracing == nil {
		return
	}
	if s.root.IsRecording() {
		s.root.SetAttributes(attribute.String("sidecar.result", result))
		if err != nil {
			fail(s.root, err, semconv.ErrorTypeKey.String(result))
		}
	}
	s.root.End()
	s.tracing = nil
}

// destinationName is the conventions' {exchange}:{routing key}:{queue}, without empty or repeated parts.
func destinationName(exchange, key, queue string) string {
	if key == queue {
		key = ""
	}
	parts := slices.DeleteFunc([]string{exchange, key, queue}, func(p string) bool { return p == "" })
	return cmp.Or(strings.Join(parts, ":"), "amq.default")
}

func setText(s trace.Span, k attribute.Key, v string) {
	if v != "" {
		s.SetAttributes(k.String(validText(v)))
	}
}

// maxStatusText bounds the description of a failed span, in bytes.
const maxStatusText = 256

func fail(sp trace.Span, err error, class attribute.KeyValue) {
	text := err.Error()
	sp.SetAttributes(class)
	sp.SetStatus(codes.Error, validText(text[:min(len(text), maxStatusText)]))
}

// validText replaces what is not UTF-8. The bytes are a publisher's or a broker's, and protobuf refuses the whole
// batch for one bad string.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
