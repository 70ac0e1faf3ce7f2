package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"
)

// ExporterOptions is where spans go: OTLP over HTTP with protobuf bodies.
type ExporterOptions struct {
	Endpoint string            // full http or https URL, path included
	Headers  map[string]string // sent with every request; never logged
	Timeout  time.Duration     // of one request; 0 = 10 s
	Gzip     bool

	CAFile, CertFile, KeyFile string // PEM, for https; read once
}

const (
	defaultExportTimeout = 10 * time.Second
	maxExportRetries     = 4
	maxExportDelay       = 30 * time.Second
)

// exporter sends batches itself. The SDK's own HTTP client drags gRPC into the binary: see
// docs/decisions/0008-otlp-without-grpc.md.
type exporter struct {
	url       string
	headers   map[string]string
	userAgent string
	timeout   time.Duration
	gzip      bool
	client    *http.Client

	alive, patient context.Context    //nolint:containedctx // the exporter's own lifetime, not a call's
	abort          context.CancelFunc // ends alive: requests stop
	finish         context.CancelFunc // ends patient: no more waiting between attempts
}

func newExporter(o ExporterOptions, version string) (*exporter, error) {
	if err := checkEndpoint(o.Endpoint); err != nil {
		return nil, err
	}
	tlsConfig, err := exportTLS(o)
	if err != nil {
		return nil, err
	}
	t := &http.Transport{
		TLSClientConfig:        tlsConfig,
		MaxIdleConns:           2,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 16 << 10,
		DisableCompression:     true,
	}
	x := &exporter{
		url: o.Endpoint, headers: o.Headers, userAgent: "amqp-sidecar/" + version, timeout: o.Timeout, gzip: o.Gzip,
		client: &http.Client{
			Transport: t,
			// The headers may hold a credential, which a redirect would carry to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if x.timeout <= 0 {
		x.timeout = defaultExportTimeout
	}
	x.alive, x.abort = context.WithCancel(context.Background())
	x.patient, x.finish = context.WithCancel(x.alive)
	return x, nil
}

var errEndpoint = errors.New("trace endpoint is not an http or https URL with a host")

// checkEndpoint returns an error that never repeats the URL, which may hold a password.
func checkEndpoint(raw string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return errEndpoint
	}
	return nil
}

func exportTLS(o ExporterOptions) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read trace collector CA: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read trace collector CA %q: no certificate in it", o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("load trace client certificate: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Start implements otlptrace.Client. Nothing is dialled: the collector may come up later.
func (x *exporter) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (x *exporter) Stop(context.Context) error {
	x.finish()
	x.abort()
	x.client.CloseIdleConnections()
	return nil
}
