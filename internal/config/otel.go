package config

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// OTel has the OpenTelemetry variables of an OTLP/HTTP trace exporter, as they were set. Config.Tracing is the result.
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

// Tracing is where spans go: the OTel variables, with those for traces put over the general ones.
type Tracing struct {
	Endpoint    string            // full URL that spans are POSTed to
	Headers     map[string]Secret // for the collector, by name as configured
	Timeout     time.Duration     // of one export
	Compression string            // "none" or "gzip"

	CAFile, CertFile, KeyFile string // PEM; "" = the system's certificates, no client certificate

	ServiceName string
	Resource    map[string]string // resource attributes, service.name included

	Sampler    string // one of the values of OTEL_TRACES_SAMPLER
	SamplerArg float64
}

// HeaderValues returns the headers in the clear, for the exporter.
func (t *Tracing) HeaderValues() map[string]string {
	values := make(map[string]string, len(t.Headers))
	for name, secret := range t.Headers {
		values[name], _ = secret.Value() // from the environment: cannot fail
	}
	return values
}

func (o *OTel) on() bool {
	return cmp.Or(o.TracesEndpoint, o.Endpoint) != "" && !o.Disabled && o.Exporter != "none"
}

// checkOTel fills Config.Tracing. Problems are kept only when tracing is on.
func (l *loader) checkOTel() {
	o := &l.cfg.OTel
	if !o.on() {
		l.demoteOTel()
		return
	}
	t := &Tracing{
		Timeout: time.Duration(cmp.Or(o.TracesTimeout, o.Timeout)), Compression: cmp.Or(o.TracesCompression, o.Compression),
		Sampler: o.Sampler, SamplerArg: o.SamplerArg,
	}
	t.Endpoint = l.otelEndpoint()
	t.Headers = l.otelHeaders()
	t.Resource, t.ServiceName = l.otelResource()
	t.CAFile, t.CertFile, t.KeyFile = l.otelTLS()
	l.checkOTelProtocol()
	if math.IsNaN(o.SamplerArg) || o.SamplerArg < 0 || o.SamplerArg > 1 {
		l.reject("OTEL_TRACES_SAMPLER_ARG", "out of range")
	}
	l.cfg.Tracing = t
}

// checkOTelProtocol lets the variable for traces overrule the general one: a whole namespace may be set to grpc.
func (l *loader) checkOTelProtocol() {
	const general, traces, only = "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"
	o := &l.cfg.OTel
	switch {
	case o.TracesProtocol != "" && o.TracesProtocol != only:
		l.reject(traces, "spans can be sent in one way only, usually to port 4318")
	case o.TracesProtocol == "" && o.Protocol != only:
		l.reject(general, "spans can be sent in one way only, usually to port 4318; set %s=%s if this variable is for "+
			"others", traces, only)
	}
}

func (l *loader) otelEndpoint() string {
	o := &l.cfg.OTel
	name, raw := "OTEL_EXPORTER_OTLP_ENDPOINT", o.Endpoint
	if o.TracesEndpoint != "" {
		name, raw = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", o.TracesEndpoint
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || checkURLChars(raw) != nil || (u.Scheme != "http" && u.Scheme != "https") ||
		!validHost(u.Hostname()):
		l.reject(name, "not the URL of an OTLP/HTTP receiver")
		return ""
	case u.User != nil || u.RawQuery != "" || u.ForceQuery:
		l.reject(name, "holds a user or a query: use OTEL_EXPORTER_OTLP_HEADERS for credentials")
		return ""
	case u.Port() != "" && checkPort(u.Port()) != nil:
		l.reject(name, "has a port outside 1 to 65535")
		return ""
	}
	if o.TracesEndpoint == "" {
		u = u.JoinPath("v1/traces")
	} else if u.Path == "" {
		u.Path = "/"
	}
	return u.String()
}

func (l *loader) otelHeaders() map[string]Secret {
	o := &l.cfg.OTel
	name, list := "OTEL_EXPORTER_OTLP_HEADERS", o.Headers
	if o.TracesHeaders.IsSet() {
		name, list = "OTEL_EXPORTER_OTLP_TRACES_HEADERS", o.TracesHeaders
	}
	text, err := list.Value()
	if err != nil || text == "" {
		return nil
	}
	pairs, err := parsePairs(text)
	if err != nil {
		l.reject(name, "%v", err)
		return nil
	}
	headers := make(map[string]Secret, len(pairs))
	for k, v := range pairs {
		if !headerName.MatchString(k) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			l.reject(name, "holds a name or value that is not allowed in a header")
			return nil
		}
		headers[k] = literal(name, v)
	}
	return headers
}

func (l *loader) otelResource() (attributes map[string]string, service string) {
	const name = "OTEL_RESOURCE_ATTRIBUTES"
	o := &l.cfg.OTel
	attributes = map[string]string{}
	if o.ResourceAttributes != "" {
		pairs, err := parsePairs(o.ResourceAttributes)
		if err != nil {
			l.reject(name, "%v", err)
		} else {
			attributes = pairs
		}
	}
	service = cmp.Or(o.ServiceName, attributes["service.name"], l.cfg.Service.Name)
	attributes["service.name"] = service
	return attributes, service
}

func (l *loader) otelTLS() (ca, cert, key string) {
	o := &l.cfg.OTel
	pick := func(general, traces, suffix string) (name, value string) {
		if traces != "" {
			return "OTEL_EXPORTER_OTLP_TRACES_" + suffix, traces
		}
		return "OTEL_EXPORTER_OTLP_" + suffix, general
	}
	caName, ca := pick(o.Certificate, o.TracesCertificate, "CERTIFICATE")
	certName, cert := pick(o.ClientCertificate, o.TracesClientCertificate, "CLIENT_CERTIFICATE")
	keyName, key := pick(o.ClientKey, o.TracesClientKey, "CLIENT_KEY")
	l.checkCAFile(caName, ca)
	l.checkKeyPair(certName, cert, keyName, key)
	return ca, cert, key
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_|~`-]+$")

// parsePairs reads name=value pairs as the OpenTelemetry specification writes them. Errors repeat no part of v, which
// may be a secret.
func parsePairs(v string) (map[string]string, error) {
	pairs := map[string]string{}
	for i, item := range strings.Split(v, ",") {
		name, value, found := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" {
			return nil, fmt.Errorf("item %d is not name=value", i+1)
		}
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil {
			return nil, errors.New("holds a '%' that encodes nothing")
		}
		pairs[name] = value
	}
	return pairs, nil
}
