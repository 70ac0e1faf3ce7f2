package config

import (
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const collector = "OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"

func TestTracing(t *testing.T) {
	t.Parallel()
	c := load(t, collector).Tracing
	if c.Endpoint != "http://127.0.0.1:4318/v1/traces" || c.Timeout != 10*time.Second || c.Compression != "none" || len(c.Headers()) != 0 ||
		c.Resource["service.name"] != "wms-cincout" || c.Sampler != "parentbased_always_on" || c.SamplerArg != 1 {
		t.Errorf("got %+v", c)
	}
	c = load(
		t, collector+"/base/", "OTEL_EXPORTER_OTLP_HEADERS=a=1, Api-Key=x%20y%3D", "OTEL_EXPORTER_OTLP_TIMEOUT=500", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
		"OTEL_RESOURCE_ATTRIBUTES=service.name=named,deployment.environment.name=prod%2C1", "OTEL_TRACES_SAMPLER=traceidratio", "OTEL_TRACES_SAMPLER_ARG=0.25",
	).Tracing
	if c.Endpoint != "http://127.0.0.1:4318/base/v1/traces" || c.Timeout != 500*time.Millisecond || c.Compression != "gzip" ||
		c.Resource["service.name"] != "named" || c.Resource["deployment.environment.name"] != "prod,1" || c.SamplerArg != 0.25 {
		t.Errorf("got %+v", c)
	}
	if h := c.Headers(); len(h) != 2 || h["Api-Key"] != "x y=" || h["a"] != "1" {
		t.Error("headers are wrong")
	}
	// What is said for traces alone wins.
	all := load(
		t, collector, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c", "OTEL_EXPORTER_OTLP_HEADERS=a=1", "OTEL_EXPORTER_OTLP_TRACES_HEADERS=b=2",
		"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=7", "OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=gzip", "OTEL_SERVICE_NAME=mine", "OTEL_RESOURCE_ATTRIBUTES=service.name=other",
	)
	shows(t, all, []Setting{{Name: "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Value: "7", Origin: "environment"}})
	c = all.Tracing
	if c.Endpoint != "https://c/" || len(c.Headers()) != 1 || c.Timeout != 7*time.Millisecond || c.Compression != "gzip" || c.Resource["service.name"] != "mine" {
		t.Errorf("got %+v", c)
	}
	cert, key := certificate(t, time.Now().Add(time.Hour))
	dir := t.TempDir()
	write(t, filepath.Join(dir, "c"), cert)
	write(t, filepath.Join(dir, "k"), key)
	c = load(
		t, collector, "OTEL_EXPORTER_OTLP_CERTIFICATE=/none", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE="+dir+"/c",
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE="+dir+"/c", "OTEL_EXPORTER_OTLP_CLIENT_KEY="+dir+"/k",
	).Tracing
	if c.CAFile != dir+"/c" || c.CertFile != dir+"/c" || c.KeyFile != dir+"/k" {
		t.Errorf("got %+v", c)
	}
}

func TestTracingOff(t *testing.T) {
	t.Parallel()
	for _, off := range [][]string{
		nil,
		{collector, "OTEL_SDK_DISABLED=TRUE"},
		{collector, "OTEL_TRACES_EXPORTER=none"},
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=nonsense", "OTEL_SDK_DISABLED=true"},
	} {
		if c := load(t, off...); c.Tracing != nil || len(c.Warnings()) != 0 {
			t.Errorf("%q: %+v, warnings %q", off, c.Tracing, c.Warnings())
		}
	}
	// What would be an error is worth a word when nothing depends on it.
	c := load(t, "OTEL_EXPORTER_OTLP_TIMEOUT=10s", "OTEL_TRACES_SAMPLER=jaeger_remote")
	if w := c.Warnings(); c.Tracing != nil || len(w) != 2 || !strings.Contains(w[0], "tracing is off") {
		t.Errorf("warnings %q", w)
	}
}

func TestTracingRefused(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ env, says string }{
		{"OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/protobuf"},
		{"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL=http/json", "one way only"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=collector:4318", "not the URL"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://h:0/", "port"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://u:" + canary + "@h/", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://h/?x", "OTEL_EXPORTER_OTLP_HEADERS"},
		{"OTEL_EXPORTER_OTLP_HEADERS=" + canary, "item 1 is not name=value"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=" + canary + "%zz", "encodes nothing"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=" + canary + "%0d%0a", "not allowed in a header"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=a b=" + canary, "not allowed in a header"},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=10s", "not a whole number of milliseconds"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=zstd", "none, gzip"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/none", "no such file"},
		{"OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY=/none", "needs its certificate"},
		{"OTEL_TRACES_EXPORTER=zipkin", "otlp, none"},
		{"OTEL_SDK_DISABLED=yes", "neither true nor false"},
		{"OTEL_RESOURCE_ATTRIBUTES=a", "item 1 is not name=value"},
		{"OTEL_TRACES_SAMPLER=sometimes", "always_on"},
		{"OTEL_TRACES_SAMPLER_ARG=1.5", "out of range"},
		{"OTEL_TRACES_SAMPLER_ARG=NaN", "out of range"},
	} {
		name, _, _ := strings.Cut(tc.env, "=")
		refuseSaying(t, tc.says, name, collector, tc.env)
	}
}
