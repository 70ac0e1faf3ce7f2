package telemetry

import (
	"net/url"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

func newResource(o *TracingOptions) *resource.Resource {
	attrs := make([]attribute.KeyValue, 0, len(o.Resource)+5)
	attrs = append(attrs, semconv.ServiceVersion(o.Version),
		semconv.TelemetrySDKName("opentelemetry"), semconv.TelemetrySDKLanguageGo, semconv.TelemetrySDKVersion(sdk.Version()))
	for k, v := range o.Resource {
		attrs = append(attrs, attribute.String(k, v))
	}
	if o.ServiceName != "" {
		// Last, because of two equal keys the last one counts: OTEL_SERVICE_NAME wins over a resource attribute.
		attrs = append(attrs, semconv.ServiceName(o.ServiceName))
	}
	return resource.NewWithAttributes(semconv.SchemaURL, attrs...)
}

// prepare builds once what is the same in every span.
func (t *Tracing) prepare(queue, appURL string) {
	t.queue, t.processName = queue, "process "+queue
	t.process = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationTypeProcess,
			semconv.MessagingOperationName("process")),
	}
	t.settle = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationTypeSettle,
			semconv.MessagingDestinationName(queue)),
	}
	t.sendAttrs = trace.WithAttributes(semconv.MessagingSystemRabbitMQ, semconv.MessagingOperationTypeSend,
		semconv.MessagingOperationName("send"))
	t.client = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(append(appAttrs(appURL), semconv.HTTPRequestMethodPost)...),
	}
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

// destinationName is the conventions' {exchange}:{routing key}:{queue}, without empty or repeated parts.
func destinationName(exchange, key, queue string) string {
	name := ""
	if exchange != "" {
		name = exchange + ":"
	}
	if key != "" && key != queue {
		name += key + ":"
	}
	return name + queue
}

func setText(s trace.Span, k attribute.Key, v string) {
	if v != "" {
		s.SetAttributes(k.String(validText(v)))
	}
}

// maxStatusText bounds the description of a failed span, in bytes.
const maxStatusText = 256

func fail(sp trace.Span, err error) {
	text := err.Error()
	sp.SetAttributes(semconv.ErrorTypeOther)
	sp.SetStatus(codes.Error, validText(text[:min(len(text), maxStatusText)]))
}

// validText replaces what is not UTF-8. The bytes are a publisher's or a broker's, and protobuf refuses the whole
// batch for one bad string.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
