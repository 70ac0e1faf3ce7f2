package dispatch

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
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
		"204":                      {apptest.Answer(apptest.Status(204)), health, ""},
		"body without end":         {apptest.AnswerAndClose("HTTP/1.1 200 OK\r\n\r\nhello"), health, ""},
		"503":                      {apptest.Answer(apptest.Status(503)), health, "answered 503"},
		"302":                      {apptest.Answer(apptest.Status(302, "Location: https://u:p@login.example/in;s=1?next=secret#f")), health, "answered 302 and Location https://login.example/in"},
		"201 with a Location":      {apptest.Answer(apptest.Status(201, "Location: /x")), health, ""},
		"503 with a Location":      {apptest.Answer(apptest.Status(503, "Location: /x")), health, "answered 503"},
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
	want := strings.Join([]string{
		"GET /health?x=1 HTTP/1.1", "Host: " + r.Header.Get("Host"), "User-Agent: amqp-sidecar/test",
		"Authorization: Bearer t", "Accept: */*", "Connection: close", "", "",
	}, "\r\n")
	if string(r.Raw) != want {
		t.Errorf("got\n%s\nwant\n%s", r.Raw, want)
	}
}

// TestProbeOfAFailingHandshake: an app to which no POST can get is away for the probe, too.
func TestProbeOfAFailingHandshake(t *testing.T) {
	t.Parallel()
	untrusted, _ := apptest.ListenTLS(t, apptest.Answer(apptest.Status(204)))
	plain := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(plain.Close)
	for _, url := range []string{untrusted.URL, strings.Replace(plain.URL, "http:", "https:", 1)} {
		for _, change := range []func(*Options){health, func(*Options) {}} {
			err := newTarget(t, url, change).Probe(context.Background())
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "tls handshake") {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestProbeOverTLSAndUnix(t *testing.T) {
	t.Parallel()
	ok := apptest.Answer(apptest.Status(200))
	secure, trust := apptest.ListenTLS(t, ok)
	for _, url := range []string{secure.URL, apptest.ListenUnix(t, ok).URL} {
		for _, change := range []func(*Options){health, func(*Options) {}} {
			target := newTarget(t, url, change, func(o *Options) { o.TLS = trust })
			if err := target.Probe(context.Background()); err != nil {
				t.Errorf("%s: %v", url, err)
			}
		}
	}
}

func TestProbeOfNothing(t *testing.T) {
	t.Parallel()
	for _, url := range []string{apptest.Refused(t), "unix://" + t.TempDir() + "/none.sock", "http://app.invalid/"} {
		for _, change := range []func(*Options){health, func(*Options) {}} {
			err := newTarget(t, url, change).Probe(context.Background())
			if !errors.Is(err, ErrRefused) {
				t.Errorf("%s: got %v", url, err)
			}
		}
	}
}

func TestProbeIsInterrupted(t *testing.T) {
	t.Parallel()
	stop := errors.New("stopping")
	ctx, cancel := context.WithCancelCause(context.Background())
	s := apptest.Listen(t, func(c *apptest.Conn) { _, _ = c.Head(); cancel(stop); c.WaitClosed() })
	target := newTarget(t, s.URL, health)
	for range 2 { // under way, and before it began
		if err := target.Probe(ctx); !errors.Is(err, stop) || errors.Is(err, ErrRefused) {
			t.Errorf("got %v", err)
		}
	}
}
