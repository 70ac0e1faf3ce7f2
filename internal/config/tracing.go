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
		l.reject(general, "spans can be sent in one way only, usually to port 4318; set %s=%s if this variable is for others", traces, only)
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
	case err != nil || checkURLChars(raw) != nil || (u.Scheme != "http" && u.Scheme != "https") || !validHost(u.Hostname()):
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
			l.reject(name, "holds a name or value that cannot stand in a header")
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
