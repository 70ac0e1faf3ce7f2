package telemetry

import (
	"bytes"
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

// UploadTraces implements otlptrace.Client: one batch, retried while the collector asks for patience or is not
// reachable. The batcher bounds the whole of it through ctx.
func (x *exporter) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// TracesData and ExportTraceServiceRequest are the same bytes; only the latter's package needs gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	if x.gzip {
		body = compress(body)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.alive, cancel)() //nolint:contextcheck // ends with the exporter as well as with ctx

	if x.patient.Err() == nil {
		err = x.retry(ctx, body)
		if err == nil || x.patient.Err() == nil {
			return err
		}
	}
	// Shutting down: one attempt each, whatever the answer.
	_, err = x.post(ctx, body)
	return err
}

// retry ends early, between two attempts, when the exporter is asked to finish.
func (x *exporter) retry(ctx context.Context, body []byte) error {
	patient, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(x.patient, cancel)() //nolint:contextcheck // ends with the exporter as well as with ctx

	var asked time.Duration
	backoff := retry.WithMaxRetries(maxExportRetries, retry.WithFullJitter(
		retry.WithCappedDuration(maxExportDelay, retry.NewExponential(time.Second))))
	atLeast := retry.BackoffFunc(func() (time.Duration, bool) {
		d, stop := backoff.Next()
		return max(d, min(asked, maxExportDelay)), stop
	})
	return retry.Do(patient, atLeast, func(context.Context) error {
		var err error
		var again bool
		if asked, again, err = x.attempt(ctx, body); again {
			return retry.RetryableError(err)
		}
		return err
	})
}

// attempt adds to post whether another attempt makes sense.
func (x *exporter) attempt(ctx context.Context, body []byte) (after time.Duration, again bool, err error) {
	r, err := x.post(ctx, body)
	if err == nil {
		return 0, false, nil
	}
	switch r.status {
	case 0, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return r.retryAfter, true, err
	}
	return 0, false, err
}

type answer struct {
	status     int // 0 without an answer
	retryAfter time.Duration
}

func (x *exporter) post(ctx context.Context, body []byte) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, x.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, x.url, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for k, v := range x.headers {
		req.Header.Set(k, v)
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", x.userAgent)
	if x.gzip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := x.client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	// The body may report a partial success, for which nothing would be done. It is read only to keep the connection.
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	a := answer{status: resp.StatusCode, retryAfter: parseRetryAfter(resp.Header.Get("Retry-After"))}
	if a.status < 200 || a.status > 299 {
		return a, fmt.Errorf("collector answered %d", a.status)
	}
	return a, nil
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
