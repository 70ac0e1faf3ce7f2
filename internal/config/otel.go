package config

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// OTel has the OpenTelemetry variables of an OTLP/HTTP trace exporter, as they were set. Config.Tracing is the result.
// The tag alias is the variable for traces alone, which counts when it is set.
type OTel struct {
	// Base URL of a collector's OTLP/HTTP receiver, e.g. `http://collector:4318`; spans go to `/v1/traces` below it, or
	// exactly to `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`. Setting one of them turns tracing on.
	Endpoint string `env:"EXPORTER_OTLP_ENDPOINT" alias:"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT" mask:"query" allowed:"an 'http://' or 'https://' URL without user, query and fragment"`

	// How spans are sent. There is one way.
	Protocol string `env:"EXPORTER_OTLP_PROTOCOL" alias:"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL" envDefault:"http/protobuf" allowed:"'http/protobuf'"`

	// Headers for the collector, e.g. an API key: `name=value,name2=value2`, values percent-encoded. Kept secret.
	Headers Secret `env:"EXPORTER_OTLP_HEADERS" alias:"OTEL_EXPORTER_OTLP_TRACES_HEADERS" allowed:"'name=value' pairs separated by commas, values percent-encoded"`

	// Time for one export, in milliseconds.
	Timeout Millis `env:"EXPORTER_OTLP_TIMEOUT" alias:"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT" envDefault:"10000" range:"1..600000"`

	// Compression of what is sent.
	Compression string `env:"EXPORTER_OTLP_COMPRESSION" alias:"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION" envDefault:"none" oneof:"none|gzip"`

	// File with the certificates (PEM) that the collector's certificate is checked against.
	Certificate string `env:"EXPORTER_OTLP_CERTIFICATE" alias:"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE" otherwise:"the system's" allowed:"path of a PEM file with at least one certificate that has not expired"`

	// File with our client certificate (PEM).
	ClientCertificate string `env:"EXPORTER_OTLP_CLIENT_CERTIFICATE" alias:"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_CLIENT_KEY"`

	// File with the private key (PEM) of our client certificate.
	ClientKey string `env:"EXPORTER_OTLP_CLIENT_KEY" alias:"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY" allowed:"path of a PEM file; together with OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"`

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

// Tracing is where spans go.
type Tracing struct {
	Endpoint    string        // full URL that spans are POSTed to
	Timeout     time.Duration // of one export
	Compression string        // "none" or "gzip"

	CAFile, CertFile, KeyFile string // PEM; "" = the system's certificates, no client certificate

	Resource map[string]string // resource attributes, service.name included

	Sampler    string // one of the values of OTEL_TRACES_SAMPLER
	SamplerArg float64

	Headers func() map[string]string // for the collector, in the clear; printing a function does not show them
}

// otlp returns a variable of the exporter.
func (l *loader) otlp(name string) *Variable { return l.byName["OTEL_EXPORTER_OTLP_"+name] }

// checkOTel fills Config.Tracing. Problems are kept only when tracing is on.
func (l *loader) checkOTel() {
	o := &l.cfg.OTel
	if l.otlp("ENDPOINT").text == "" || o.Disabled || o.Exporter == "none" {
		l.demoteOTel()
		return
	}
	ca, cert, key := l.otlp("CERTIFICATE"), l.otlp("CLIENT_CERTIFICATE"), l.otlp("CLIENT_KEY")
	if ca.text != "" {
		if err := checkCertificateFile(ca.text); err != nil {
			l.reject(ca.Name, "%v", err)
		}
	}
	l.checkKeyPair(cert, key)
	l.checkOTelProtocol()
	resource, err := parseOTelPairs(o.ResourceAttributes)
	if err != nil {
		l.reject("OTEL_RESOURCE_ATTRIBUTES", "%v", err)
	}
	resource["service.name"] = cmp.Or(o.ServiceName, resource["service.name"], l.cfg.Service.Name)
	l.cfg.Tracing = &Tracing{
		Endpoint: l.otelEndpoint(), Headers: l.otelHeaders(), Resource: resource,
		Timeout: time.Duration(o.Timeout), Compression: o.Compression,
		CAFile: ca.text, CertFile: cert.text, KeyFile: key.text, Sampler: o.Sampler, SamplerArg: o.SamplerArg,
	}
}

// checkOTelProtocol names the variable for traces alone: a whole namespace may be set to grpc.
func (l *loader) checkOTelProtocol() {
	const traces, only = "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "http/protobuf"
	switch v := l.otlp("PROTOCOL"); {
	case v.value.String() == only:
	case v.from == traces:
		l.reject(v.Name, "spans can be sent in one way only, usually to port 4318")
	default:
		l.reject(v.Name, "spans can be sent in one way only, usually to port 4318; set %s=%s if this variable is for others",
			traces, only)
	}
}

func (l *loader) otelEndpoint() string {
	v := l.otlp("ENDPOINT")
	scheme, rest, _ := strings.Cut(v.text, "://") // other programs that read the variable take HTTP://, too
	u, err := parseURL(strings.ToLower(scheme)+"://"+rest, "", "http", "https")
	if err == nil {
		err = checkURLChars(v.text)
	}
	switch {
	case err != nil:
		l.reject(v.Name, "not the URL of an OTLP/HTTP receiver: %v", err)
		return ""
	case u.User != nil || u.RawQuery != "" || u.ForceQuery:
		l.reject(v.Name, "holds a user or a query: use OTEL_EXPORTER_OTLP_HEADERS for credentials")
		return ""
	case v.from == v.Name:
		u = u.JoinPath("v1/traces")
	}
	u.Path = cmp.Or(u.Path, "/")
	return u.String()
}

func (l *loader) otelHeaders() func() map[string]string {
	v := l.otlp("HEADERS")
	pairs, err := parseOTelPairs(v.text)
	for name, value := range pairs {
		if !headerName.MatchString(name) || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r == 0x7f }) {
			err = errors.New("holds a name or value that is not allowed in a header")
		}
	}
	if err != nil {
		l.reject(v.Name, "%v", err)
	}
	return func() map[string]string { return pairs }
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_|~`-]+$")

// parseOTelPairs reads name=value pairs as the OpenTelemetry specification writes them, with an error those before the
// wrong one. Errors repeat no part of v, which may be a secret.
func parseOTelPairs(v string) (map[string]string, error) {
	pairs := map[string]string{}
	if v == "" {
		return pairs, nil
	}
	for i, item := range strings.Split(v, ",") {
		name, value, found := strings.Cut(item, "=")
		name = strings.TrimSpace(name)
		if !found || name == "" {
			return pairs, fmt.Errorf("item %d is not name=value", i+1)
		}
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if err != nil {
			return pairs, errors.New("holds a '%' that encodes nothing")
		}
		pairs[name] = value
	}
	return pairs, nil
}
