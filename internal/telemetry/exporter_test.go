package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/testkit/must"
)

func TestExportRequest(t *testing.T) {
	t.Parallel()
	for _, zip := range []bool{false, true} {
		c := traced(t, TracingOptions{
			Version: "1.2.3", Endpoint: "/in", Gzip: zip, Headers: map[string]string{"authorization": "Bearer canary"},
		}, record)
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
	roots := x509.NewCertPool()
	roots.AddCert(c.Certificate())
	tracing := startTracing(t, TracingOptions{
		Endpoint: c.URL, TLS: &tls.Config{RootCAs: roots, Certificates: c.TLS.Certificates, MinVersion: tls.VersionTLS12},
	})
	record(tracing)
	flush(t, tracing)
	if len(c.spans) != 1 {
		t.Errorf("%d spans", len(c.spans))
	}
}

func TestExportDoesNotFollowRedirects(t *testing.T) {
	t.Parallel()
	c := newCollector(t)
	c.answer = func(w http.ResponseWriter, _ int) {
		w.Header().Set("Location", "http://evil.example/")
		w.WriteHeader(http.StatusPermanentRedirect)
	}
	err := stopped(t, TracingOptions{Endpoint: c.URL}).UploadTraces(t.Context(), nil)
	if err == nil || !strings.Contains(err.Error(), "collector answered 308") {
		t.Errorf("got %v", err)
	}
}

// What is linked but never called still costs memory in every pod: docs/decisions/0008-otlp-without-grpc.md.
func TestGRPCStaysOut(t *testing.T) {
	t.Parallel()
	mod := must.Get(os.ReadFile("../../go.mod"))(t)
	for _, banned := range []string{"google.golang.org/grpc", "otlptracehttp", "otlptracegrpc"} {
		if strings.Contains(string(mod), banned) {
			t.Errorf("go.mod requires %s", banned)
		}
	}
}

// roundTrip takes the place of the network: real sockets and virtual time do not mix.
type roundTrip func(n int, r *http.Request) (*http.Response, error)

type script struct {
	f     roundTrip
	calls int
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.calls++
	return s.f(s.calls, r)
}

func scripted(t *testing.T, f roundTrip) (*exporter, *script) {
	t.Helper()
	x, s := stopped(t, TracingOptions{Endpoint: "http://collector"}), &script{f: f}
	x.client.Transport = s
	return x, s
}

// stopped is an exporter that stops with the test.
func stopped(t *testing.T, o TracingOptions) *exporter {
	t.Helper()
	o.Version = "1"
	x := newExporter(o)
	t.Cleanup(func() { _ = x.Stop(context.Background()) })
	return x
}

// answered is an answer; an empty retryAfter is as good as none.
func answered(status int, retryAfter string) *http.Response {
	header := http.Header{"Retry-After": {retryAfter}}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader("partial success"))}
}

// TestExportRetries while the collector asks for patience or is not reachable, and not after a plain refusal.
func TestExportRetries(t *testing.T) {
	t.Parallel()
	type row struct {
		statuses []int // of the answers, one after the other; none: the connection is refused
		calls    int
		err      string // "" for none
	}
	rows := []row{{[]int{429, 502, 503, 504, 200}, 5, ""}, {nil, maxExportRetries + 1, "refused"}}
	for _, status := range []int{101, 301, 400, 401, 404, 413, 500, 501} {
		rows = append(rows, row{[]int{status}, 1, fmt.Sprint("collector answered ", status)})
	}
	for _, row := range rows {
		synctest.Test(t, func(t *testing.T) {
			x, s := scripted(t, func(n int, _ *http.Request) (*http.Response, error) {
				if row.statuses == nil {
					return nil, errors.New("refused")
				}
				return answered(row.statuses[n-1], "1"), nil
			})
			err := x.UploadTraces(t.Context(), nil)
			if s.calls != row.calls || (err == nil) != (row.err == "") || err != nil && !strings.HasSuffix(err.Error(), row.err) {
				t.Errorf("%v: %v after %d calls", row.statuses, err, s.calls)
			}
		})
	}
}

func TestExportWaitsAsAsked(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		header   string
		at, most time.Duration // the wait asked for, and the longest with our own jittered backoff
	}{
		{"7", 7 * time.Second, 7 * time.Second},
		{"Sat, 01 Jan 2000 00:00:09 GMT", 9 * time.Second, 9 * time.Second}, // a bubble's clock starts at 2000-01-01
		{"999999999", 30 * time.Second, 30 * time.Second},
		{"Sat, 01 Jan 2050 00:00:00 GMT", 30 * time.Second, 30 * time.Second},
		{"-5", 0, time.Second},
		{"soon", 0, time.Second},
		{"1e99", 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, _ := scripted(t, func(n int, _ *http.Request) (*http.Response, error) {
				if n == 1 {
					return answered(503, tt.header), nil
				}
				return answered(200, ""), nil
			})
			start := time.Now()
			if err := x.UploadTraces(t.Context(), nil); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d < tt.at || d > tt.most {
				t.Errorf("%q: waited %v", tt.header, d)
			}
		})
	}
}

// A shutdown in the middle of a backoff tries once more at once, then lets go.
func TestFinishCutsTheBackoffShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x, s := scripted(t, func(int, *http.Request) (*http.Response, error) { return answered(503, "30"), nil })
		done := make(chan error)
		go func() { done <- x.UploadTraces(context.Background(), nil) }()
		synctest.Wait()
		start := time.Now()
		x.finish()
		if err := <-done; err == nil || s.calls != 2 || time.Since(start) != 0 {
			t.Errorf("%v after %d calls and %v", err, s.calls, time.Since(start))
		}
		if err := x.UploadTraces(context.Background(), nil); err == nil || s.calls != 3 {
			t.Errorf("%v after %d calls", err, s.calls)
		}
		x.abort()
	})
}
