package config

// OTel is the OpenTelemetry variables an OTLP/HTTP trace exporter looks at, as they were set. Config.Tracing is what
// they come to.
type OTel struct {
	// Base URL of a collector's OTLP/HTTP receiver, e.g. `http://collector:4318`; spans go to `/v1/traces` below it.
	// Setting this or the next turns tracing on.
	Endpoint string `env:"EXPORTER_OTLP_ENDPOINT" mask:"query" allowed:"an 'http://' or 'https://' URL without user, query and fragment"`

	// The same for traces alone, taken as it is: nothing is added to its path.
	TracesEndpoint string `env:"EXPORTER_OTLP_TRACES_ENDPOINT" mask:"query" allowed:"an 'http://' or 'https://' URL without user, query and fragment"`

	// How spans are sent. There is one way.
	Protocol string `env:"EXPORTER_OTLP_PROTOCOL" envDefault:"http/protobuf" allowed:"'http/protobuf'"`

	// The same for traces alone. Useful where the one above is set to `grpc` for everybody.
	TracesProtocol string `env:"EXPORTER_OTLP_TRACES_PROTOCOL" allowed:"'http/protobuf'"`

	// Headers for the collector, e.g. an API key: `name=value,name2=value2`, values percent-encoded. Kept secret.
	Headers Secret `env:"EXPORTER_OTLP_HEADERS" allowed:"'name=value' pairs separated by commas, values percent-encoded"`

	// The same for traces alone; replaces the list above.
	TracesHeaders Secret `env:"EXPORTER_OTLP_TRACES_HEADERS" allowed:"'name=value' pairs separated by commas, values percent-encoded"`

	// Time for one export, in milliseconds.
	Timeout Millis `env:"EXPORTER_OTLP_TIMEOUT" envDefault:"10000" range:"1..600000"`

	// The same for traces alone.
	TracesTimeout Millis `env:"EXPORTER_OTLP_TRACES_TIMEOUT" range:"1..600000"`

	// Compression of what is sent.
	Compression string `env:"EXPORTER_OTLP_COMPRESSION" envDefault:"none" oneof:"none|gzip"`

	// The same for traces alone.
	TracesCompression string `env:"EXPORTER_OTLP_TRACES_COMPRESSION" oneof:"none|gzip"`

	// File with the certificates (PEM) that the collector's certificate is checked against.
	Certificate string `env:"EXPORTER_OTLP_CERTIFICATE" otherwise:"the system's" allowed:"path of a PEM file with at least one certificate that has not expired"`

	// The same for traces alone.
	TracesCertificate string `env:"EXPORTER_OTLP_TRACES_CERTIFICATE" allowed:"path of a PEM file with at least one certificate that has not expired"`

	// File with our client certificate (PEM).
	ClientCertificate string `env:"EXPORTER_OTLP_CLIENT_CERTIFICATE" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_CLIENT_KEY"`

	// The same for traces alone.
	TracesClientCertificate string `env:"EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY"`

	// File with the private key (PEM) of our client certificate.
	ClientKey string `env:"EXPORTER_OTLP_CLIENT_KEY" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"`

	// The same for traces alone.
	TracesClientKey string `env:"EXPORTER_OTLP_TRACES_CLIENT_KEY" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE"`

	// `none` turns tracing off although an endpoint is set.
	Exporter string `env:"TRACES_EXPORTER" envDefault:"otlp" oneof:"otlp|none"`

	// `true` turns tracing off although an endpoint is set.
	Disabled bool `env:"SDK_DISABLED" envDefault:"false" allowed:"'true' or 'false', in any case"`

	// Name of the service in traces.
	ServiceName string `env:"SERVICE_NAME" allowed:"any text" otherwise:"SIDECAR_SERVICE, unless the next one has a service.name"`

	// More about the service: `name=value,name2=value2`, values percent-encoded.
	ResourceAttributes string `env:"RESOURCE_ATTRIBUTES" allowed:"'name=value' pairs separated by commas, values percent-encoded"`

	// Which traces are kept.
	Sampler string `env:"TRACES_SAMPLER" envDefault:"parentbased_always_on" oneof:"always_on|always_off|traceidratio|parentbased_always_on|parentbased_always_off|parentbased_traceidratio"`

	// The share of traces kept by the `traceidratio` samplers.
	SamplerArg float64 `env:"TRACES_SAMPLER_ARG" envDefault:"1" allowed:"a number from 0 to 1"`
}
