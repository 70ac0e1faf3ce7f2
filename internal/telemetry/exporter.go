package telemetry

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/sethvargo/go-retry"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

const (
	defaultExportTimeout = 10 * time.Second
	maxExportRetries     = 4
	maxExportDelay       = 30 * time.Second
)

// exporter sends batches itself. The SDK's own HTTP client drags gRPC into the binary: see
// docs/decisions/0008-otlp-without-grpc.md.
type exporter struct {
	o         TracingOptions
	userAgent string
	client    *http.Client

	alive, patient context.Context    //nolint:containedctx // the exporter's own lifetime, not a call's
	abort          context.CancelFunc // ends alive: requests stop
	finish         context.CancelFunc // ends patient: no more waiting between attempts
}

func newExporter(o TracingOptions) *exporter {
	o.Timeout = cmp.Or(o.Timeout, defaultExportTimeout)
	x := &exporter{
		o: o, userAgent: "amqp-sidecar/" + o.Version,
		client: &http.Client{
			Transport: &http.Transport{
				TLSClientConfig:        o.TLS,
				MaxIdleConns:           2,
				IdleConnTimeout:        30 * time.Second,
				MaxResponseHeaderBytes: 16 << 10,
				DisableCompression:     true,
			},
			// The headers may hold a credential, which a redirect would carry to another host.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	x.alive, x.abort = context.WithCancel(context.Background())
	x.patient, x.finish = context.WithCancel(context.Background())
	return x
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

// UploadTraces implements otlptrace.Client: one batch, retried while the collector asks for patience or is not
// reachable. The batcher bounds the whole of it through ctx.
func (x *exporter) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData and ExportTraceServiceRequest are the same bytes; only the latter's package needs gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if x.o.Gzip {
		body = compress(body)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.alive, cancel)() //nolint:contextcheck // ends with the exporter as well as with ctx

	backoff := retry.WithMaxRetries(maxExportRetries, retry.WithFullJitter(
		retry.WithCappedDuration(maxExportDelay, retry.NewExponential(time.Second))))
	for {
		last := x.patient.Err() != nil // shutting down: one attempt each, whatever the answer
		after, again, err := x.post(ctx, body)
		if err == nil || !again || last {
			return err
		}
		pause, stop := backoff.Next()
		if stop {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-x.patient.Done():
		case <-time.After(max(pause, min(after, maxExportDelay))):
		}
	}
}

// post makes one attempt. With an error comes whether another attempt makes sense, and what Retry-After asks for.
func (x *exporter) post(ctx context.Context, body []byte) (after time.Duration, again bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, x.o.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.o.Endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, false, err
	}
	for k, v := range x.o.Headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", x.userAgent)
	if x.o.Gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return 0, true, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The body may report a partial success, for which nothing would be done. It is read only to keep the connection.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode >= 200 && resp.StatusCode <= 299 {
		return 0, false, nil
	}
	switch resp.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return parseRetryAfter(resp.Header.Get("Retry-After")), again, fmt.Errorf("collector answered %d", resp.StatusCode)
}

// parseRetryAfter reads seconds or an HTTP date; anything else is 0.
func parseRetryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(s); err == nil {
		return time.Duration(min(max(n, 0), int(maxExportDelay/time.Second))) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

func compress(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	// A bytes.Buffer does not fail.
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}
