package telemetry

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckEndpoint(t *testing.T) {
	t.Parallel()
	for in, ok := range map[string]bool{
		"http://c:4318/v1/traces": true,
		"https://c":               true,
		"":                        false,
		"c:4318":                  false,
		"grpc://c:4317":           false,
		"http://":                 false,
		"http://:4318":            false,
		"http://user:canary%zz@c": false,
		"ftp://user:canary@c/in":  false,
	} {
		err := checkEndpoint(in)
		if (err == nil) != ok {
			t.Errorf("%q: %v", in, err)
		}
		if err != nil && strings.Contains(err.Error(), "canary") {
			t.Errorf("%q: the error shows the password", in)
		}
	}
}

func TestExportRequest(t *testing.T) {
	t.Parallel()
	for _, zip := range []bool{false, true} {
		c := traced(t, TracingOptions{Queue: "q", Version: "1.2.3", Exporter: ExporterOptions{
			Endpoint: "/in", Gzip: zip, Headers: map[string]string{"authorization": "Bearer canary"},
		}}, record)
		if len(c.requests) != 1 || len(c.spans) != 1 {
			t.Fatalf("gzip %v: %d requests, %d spans", zip, len(c.requests), len(c.spans))
		}
		r := c.requests[0]
		if r.Method != http.MethodPost || r.URL.Path != "/in" || r.Header.Get("Content-Type") != "application/x-protobuf" ||
			r.UserAgent() != "amqp-sidecar/1.2.3" || r.Header.Get("Authorization") != "Bearer canary" {
			t.Errorf("%s %s %v", r.Method, r.URL, r.Header)
		}
	}
}

func TestExportOverTLS(t *testing.T) {
	t.Parallel()
	c := &collector{spans: make(map[string]span)}
	c.Server = httptest.NewUnstartedServer(c)
	c.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	c.StartTLS()
	t.Cleanup(c.Close)
	dir := t.TempDir()
	ca, key := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "key.pem")
	writePEM(t, ca, "CERTIFICATE", c.Certificate().Raw)
	der, err := x509.MarshalPKCS8PrivateKey(c.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, key, "PRIVATE KEY", der)

	tracing := startTracing(t, TracingOptions{Queue: "q", Exporter: ExporterOptions{
		Endpoint: c.URL, CAFile: ca, CertFile: ca, KeyFile: key,
	}})
	record(tracing)
	flush(t, tracing)
	if len(c.spans) != 1 {
		t.Errorf("%d spans", len(c.spans))
	}
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestExportDoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.answer = func(w http.ResponseWriter, _ int) {
		w.Header().Set("Location", "http://evil.example/")
		w.WriteHeader(http.StatusPermanentRedirect)
	}
	x, err := newExporter(ExporterOptions{Endpoint: c.URL}, "1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = x.Stop(t.Context()) }()
	err = x.UploadTraces(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "collector answered 308") {
		t.Errorf("got %v", err)
	}
}

// What is linked but never called still costs memory in every pod: docs/decisions/0008-otlp-without-grpc.md.
func TestGRPCStaysOut(t *testing.T) {
	t.Parallel()
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for _, banned := range []string{"google.golang.org/grpc", "otlptracehttp", "otlptracegrpc"} {
		if strings.Contains(string(mod), banned) {
			t.Errorf("go.mod requires %s", banned)
		}
	}
}
