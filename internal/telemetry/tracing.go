package telemetry

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// TracingOptions says where and how to send spans.
type TracingOptions struct {
	Resource   map[string]string // resource attributes, service.name included
	Version    string
	Sampler    string  // a value of OTEL_TRACES_SAMPLER; "" is parentbased_always_on
	SamplerArg float64 // share of traces kept by the two traceidratio samplers, 0 to 1

	// Spans go by OTLP over HTTP, with protobuf bodies.
	Endpoint string            // full http or https URL, path included; config refuses any other
	Headers  map[string]string // sent with every request; never logged
	Timeout  time.Duration     // of one request; 0 = 10 s
	Gzip     bool
	TLS      *tls.Config // for https; nil: the certificates of the system

	Logger *slog.Logger
}

// Tracing makes the spans of one sidecar. A nil Tracing is one that is off: it costs nothing per message except the
// traceparent of a message that brought none.
type Tracing struct {
	tracer   trace.Tracer
	provider *sdktrace.TracerProvider
	exporter *exporter

	queue string // see ForQueue
	// What is the same in every span of a kind.
	process, client, settle      []trace.SpanStartOption
	sendAsProducer, sendAsClient []trace.SpanStartOption // of the app's own publish; of a message that is moved
}

// NewTracing starts the batching exporter. The collector may be away.
func NewTracing(o TracingOptions) *Tracing {
	x := newExporter(o)
	otel.SetErrorHandler(exportErrors(o.Logger))

	t := &Tracing{
		exporter: x,
		// The batcher never blocks: with a dead collector its bounded queue fills and further spans are dropped.
		provider: sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(otlptrace.NewUnstarted(x)),
			sdktrace.WithSampler(newSampler(o.Sampler, o.SamplerArg)),
			sdktrace.WithResource(newResource(&o)),
		),
	}
	t.tracer = t.provider.Tracer("amqp-sidecar", trace.WithInstrumentationVersion(o.Version))
	t.process = spanOptions(trace.SpanKindConsumer, semconv.MessagingSystemRabbitMQ,
		semconv.MessagingOperationTypeProcess, semconv.MessagingOperationName("process"))
	send := []attribute.KeyValue{semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationTypeSend,
		semconv.MessagingOperationName("send")}
	t.sendAsClient = spanOptions(trace.SpanKindClient, send...)
	t.sendAsProducer = spanOptions(trace.SpanKindProducer, send...)
	return t
}

func spanOptions(kind trace.SpanKind, attributes ...attribute.KeyValue) []trace.SpanStartOption {
	return []trace.SpanStartOption{trace.WithSpanKind(kind), trace.WithAttributes(attributes...)}
}

func newResource(o *TracingOptions) *resource.Resource {
	attrs := []attribute.KeyValue{semconv.ServiceVersion(o.Version), semconv.TelemetrySDKName("opentelemetry"),
		semconv.TelemetrySDKLanguageGo, semconv.TelemetrySDKVersion(sdk.Version())}
	for k, v := range o.Resource {
		attrs = append(attrs, attribute.String(k, v))
	}
	return resource.NewWithAttributes(semconv.SchemaURL, attrs...)
}

// newSampler returns the sampler of a value of OTEL_TRACES_SAMPLER. Any other word means always_on: config refuses it.
func newSampler(name string, ratio float64) sdktrace.Sampler {
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	sampler := sdktrace.AlwaysSample()
	switch kind {
	case "always_off":
		sampler = sdktrace.NeverSample()
	case "traceidratio":
		sampler = sdktrace.TraceIDRatioBased(ratio)
	}
	if parentBased || name == "" {
		return sdktrace.ParentBased(sampler)
	}
	return sampler
}

// exportErrors logs the tracing SDK's errors, at most one a minute: a collector that is away fails every few seconds.
func exportErrors(logger *slog.Logger) otel.ErrorHandler {
	t := Throttle{Interval: time.Minute}
	return otel.ErrorHandlerFunc(func(err error) {
		t.Do(func(suppressed int) { logger.Warn("trace export failed", "error", err, "suppressed", suppressed) })
	})
}

// ForQueue returns a Tracing of the same sidecar for the messages of queue, which are POSTed to appURL: http, https or
// unix://socket:/path. Process and the spans that follow it need one; Produce does not.
func (t *Tracing) ForQueue(queue, appURL string) *Tracing {
	if t == nil {
		return nil
	}
	q := *t
	q.queue = queue
	q.settle = spanOptions(trace.SpanKindClient, semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationTypeSettle)
	q.client = spanOptions(trace.SpanKindClient, append(appAttrs(appURL), semconv.HTTPRequestMethodPost)...)
	return &q
}

// appAttrs describes the app's address. User information and query are left out: either may be a secret. An address
// that does not parse gives no attributes.
func appAttrs(raw string) []attribute.KeyValue {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme == "" {
		return nil
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	full := semconv.URLFull(u.String())
	port := 80
	switch u.Scheme {
	case "unix":
		socket, _, _ := strings.Cut(u.Path, ":")
		return []attribute.KeyValue{full, semconv.NetworkTransportUnix, semconv.ServerAddress(socket)}
	case "https":
		port = 443
	}
	if n, err := strconv.Atoi(u.Port()); err == nil {
		port = n
	}
	return []attribute.KeyValue{full, semconv.ServerAddress(u.Hostname()), semconv.ServerPort(port)}
}

// Shutdown sends what is queued and stops the exporter, at most until ctx ends; what is unsent then is dropped. With
// a dead collector each queued batch is tried once, without backoff.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.exporter.finish()
	defer func() { _ = t.exporter.Stop(ctx) }()
	// The batcher's own goroutine does not end with ctx: cutting its requests short ends it.
	stop := context.AfterFunc(ctx, t.exporter.abort)
	defer stop()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("flush traces: %w", err)
	}
	return nil
}
