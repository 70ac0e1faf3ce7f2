package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TracingOptions says whether, where and how to send spans. Everything but Enabled may stay zero when it is off.
type TracingOptions struct {
	Enabled bool

	Queue  string // the queue of every message; part of span names
	AppURL string // where messages are POSTed: http, https or unix://socket:/path

	ServiceName string            // resource attribute service.name
	Resource    map[string]string // further resource attributes
	Version     string
	Sampler     string  // a value of OTEL_TRACES_SAMPLER; "" is parentbased_always_on
	SamplerArg  float64 // share of traces kept by the two traceidratio samplers, 0 to 1

	Exporter ExporterOptions
	Logger   *slog.Logger
}

// Tracing makes the spans of one sidecar. A nil or switched-off Tracing works too: it costs nothing per message except
// the traceparent of a message that brought none.
type Tracing struct {
	tracer   trace.Tracer // nil when off
	provider *sdktrace.TracerProvider
	exporter *exporter

	queue       string
	processName string
	sendAttrs   trace.SpanStartOption
	process     []trace.SpanStartOption
	client      []trace.SpanStartOption
	settle      []trace.SpanStartOption
}

// NewTracing starts the batching exporter when o.Enabled, else it returns a Tracing that is off. Errors name what is
// wrong with the endpoint, the TLS files or the sampler; a collector that is away is not an error.
func NewTracing(ctx context.Context, o TracingOptions) (*Tracing, error) {
	if !o.Enabled {
		return &Tracing{}, nil
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	sampler, err := newSampler(o.Sampler, o.SamplerArg)
	if err != nil {
		return nil, err
	}
	x, err := newExporter(o.Exporter, o.Version)
	if err != nil {
		return nil, err
	}
	spans, err := otlptrace.New(ctx, x)
	if err != nil {
		return nil, fmt.Errorf("start trace exporter: %w", err)
	}
	otel.SetErrorHandler(exportErrors(o.Logger))

	t := &Tracing{
		exporter: x,
		// The batcher never blocks: with a dead collector its bounded queue fills and further spans are dropped.
		provider: sdktrace.NewTracerProvider(
			sdktrace.WithBatcher(spans),
			sdktrace.WithSampler(sampler),
			sdktrace.WithResource(newResource(&o)),
		),
	}
	t.tracer = t.provider.Tracer("amqp-sidecar", trace.WithInstrumentationVersion(o.Version))
	t.prepare(o.Queue, o.AppURL)
	return t, nil
}

// Shutdown sends what is queued and stops the exporter, at most until ctx ends; what is unsent then is dropped. With
// a dead collector each queued batch is tried once, without backoff.
func (t *Tracing) Shutdown(ctx context.Context) error {
	if t == nil || t.tracer == nil {
		return nil
	}
	t.exporter.finish()
	// The batcher's own goroutine does not end with ctx: cutting its requests short ends it.
	stop := context.AfterFunc(ctx, t.exporter.abort)
	defer stop()
	if err := t.provider.Shutdown(ctx); err != nil {
		return fmt.Errorf("flush traces: %w", err)
	}
	return nil
}

// exportErrors logs the tracing SDK's errors, at most one a minute: a collector that is away fails every few seconds.
func exportErrors(logger *slog.Logger) otel.ErrorHandler {
	t := Throttle{Interval: time.Minute}
	return otel.ErrorHandlerFunc(func(err error) {
		t.Do(func(suppressed int) { logger.Warn("trace export failed", "error", err, "suppressed", suppressed) })
	})
}
