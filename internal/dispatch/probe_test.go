package dispatch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

func health(o *Options) { o.HealthPath, o.HealthTimeout = "/health?x=1", 5*time.Second }

func TestProbe(t *testing.T) {
	t.Parallel()
	ok := apptest.Answer(apptest.Status(200))
	silent := func(c *apptest.Conn) { c.WaitClosed() }
	short := func(o *Options) { o.HealthPath, o.HealthTimeout = "/h", patience }
	for name, row := range map[string]struct {
		script func(*apptest.Conn)
		change func(*Options)
		says   string // "" = healthy
	}{
		"connect":                  {silent, func(*Options) {}, ""},
		"200":                      {ok, health, ""},
		"body without end":         {apptest.AnswerAndClose("HTTP/1.1 200 OK\r\n\r\nhello"), health, ""},
		"503":                      {apptest.Answer(apptest.Status(503)), health, "answered 503"},
		"302":                      {apptest.Answer(apptest.Status(302, "Location: https://u:p@login.example/in;s=1?next=secret#f")), health, "answered 302 and Location https://login.example/in"},
		"201 with a Location":      {apptest.Answer(apptest.Status(201, "Location: /x")), health, ""},
		"not HTTP":                 {apptest.Answer("hello\r\n"), health, "not HTTP/1"},
		"closes":                   {apptest.AnswerAndClose(""), health, "closed the connection"},
		"resets":                   {func(c *apptest.Conn) { _, _ = c.Head(); _ = c.Reset() }, health, "reset"},
		"accepts and says nothing": {silent, short, "timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := apptest.Listen(t, row.script)
			target := newTarget(t, s.URL, row.change)
			err := target.Probe(context.Background())
			if errors.Is(err, ErrRefused) {
				t.Errorf("%v is called refused", err)
			}
			if row.says == "" && err != nil || row.says != "" && (err == nil || !strings.Contains(err.Error(), row.says)) {
				t.Errorf("got %v, want %q", err, row.says)
			}
		})
	}
}

func TestProbeRequest(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, apptest.Answer(apptest.Status(200)))
	target := newTarget(t, s.URL+"/in", health, func(o *Options) { o.Token = func() string { return "t" } })
	if err := target.Probe(context.Background()); err != nil {
		t.Fatal(err)
	}
	r := s.Requests()[0]
	wantRequest(t, r, "GET /health?x=1 HTTP/1.1", "Host: "+r.Header.Get("Host"), "User-Agent: amqp-sidecar/test",
		"Authorization: Bearer t", "Accept: */*", "Connection: close", "", "")
}

// TestNoConnectionInTime: an app that hangs answers no TLS handshake. It is away, as an app that refuses, but no text calls
// that refused.
func TestNoConnectionInTime(t *testing.T) {
	t.Parallel()
	s := apptest.Listen(t, func(c *apptest.Conn) { c.WaitClosed() })
	url, short := strings.Replace(s.URL, "http:", "https:", 1), 50*time.Millisecond
	for _, path := range []string{"", "/health"} {
		target := newTarget(t, url, timeout(short), func(o *Options) { o.HealthPath, o.HealthTimeout = path, short })
		err := target.Probe(context.Background())
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "the app did not answer in time: ") || strings.Contains(err.Error(), "refused") {
			t.Errorf("%v", err)
		}
		wantFailure(t, dispatch(t, target, sample()), message.FailureRefused, "connect to the app: timeout: the app did not answer in time: ")
	}
}

// TestProbeOfAnAddress: an app to which no POST can get is away for the probe, too, with a health path or without.
func TestProbeOfAnAddress(t *testing.T) {
	t.Parallel()
	ok := apptest.Answer(apptest.Status(200))
	secure, trust := apptest.ListenTLS(t, ok)
	untrusted, _ := apptest.ListenTLS(t, ok)
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for url, says := range map[string]string{ // "": it is there
		secure.URL: "", apptest.ListenUnix(t, ok).URL: "", untrusted.URL: "tls handshake", strings.Replace(plain.URL, "http:", "https:", 1): "tls handshake",
		apptest.Refused(t): "refused", "unix://" + t.TempDir() + "/none.sock": "no such file", "http://app.invalid/": "lookup app.invalid",
		strings.Replace(apptest.Refused(t), "http:", "https:", 1): "refused",
	} {
		for _, change := range []func(*Options){health, func(*Options) {}} {
			target := newTarget(t, url, change, func(o *Options) { o.TLS = trust })
			err := target.Probe(context.Background())
			if (err == nil) != (says == "") || err != nil && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), says)) {
				t.Errorf("%s: %v", url, err)
			}
			if says != "" {
				wantFailure(t, dispatch(t, target, sample()), message.FailureRefused, says)
			}
		}
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	r := prometheus.NewPedanticRegistry()
	statuses := []int{200, 200, 204, 302, 404, 503, 0, 999}
	s := apptest.Listen(t, func(c *apptest.Conn) {
		for _, status := range statuses {
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(apptest.Status(status))
		}
		_, _ = c.Next()
	})
	target := newTarget(t, s.URL, func(o *Options) { o.Registerer, o.MaxBody = r, 100 })
	for range statuses {
		dispatch(t, target, sample())
	}
	dispatch(t, target, sample()) // reset
	dispatch(t, target, sized(101))
	stopped, cancel := context.WithCancel(context.Background())
	cancel()
	m := withHeaders(sample(), amqp.Table{"": "v", "日": "v"})
	target.Dispatch(stopped, m) // never encoded
	s.Close()
	dispatch(t, target, m) // refused
	want := func(metric, label string, values map[string]float64) {
		t.Helper()
		for value, n := range values {
			if got := brokertest.Metric(t, r, metric, label, value); got != n {
				t.Errorf("%s of %s %s: %v, want %v", metric, label, value, got, n)
			}
		}
	}
	want("sidecar_http_requests_total", "code", map[string]float64{
		"200": 2, "204": 1, "302": 1, "404": 1, "503": 1, "invalid": 2, "reset": 1, "interrupted": 1, "refused": 1,
	})
	want("sidecar_http_request_duration_seconds", "outcome", map[string]float64{"2xx": 3, "3xx": 1, "4xx": 1, "5xx": 1, "error": 5})
	for name, n := range map[string]float64{
		"sidecar_http_requests_total": 11, "sidecar_http_request_duration_seconds": 11, "sidecar_headers_truncated_total": 2,
	} {
		if got := brokertest.Metric(t, r, name); got != n {
			t.Errorf("%s: %v in all, want %v", name, got, n)
		}
	}
}
