package flow

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

// TestAppThatIsAwayIsLogged: at the start after a while, later at once, and again from time to time until it is back. The line
// and the reason say what failed: an app that answers its health check with a failure is not silent.
func TestAppThatIsAwayIsLogged(t *testing.T) {
	t.Parallel()
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	health := func(o *Options) { o.Health = "http://app/h" }
	for name, c := range map[string]struct {
		change       func(*Options)
		err          error
		line, detail string
	}{
		"nothing listens": {
			nil, errRefused, `msg=paused reason=app_down url=http://app/x error="connection refused"`, "the app does not answer: connection refused",
		},
		"a probe without end": {
			func(o *Options) { o.Probe = hangs }, nil,
			`msg=paused reason=app_down url=http://app/x error="the app has not answered yet"`, "the app has not answered yet",
		},
		"a health check is answered": {
			health, &message.UnwellError{Status: 301, Location: "https://login/in"},
			`msg=paused reason=app_down url=http://app/h error="the app answered 301 and Location https://login/in" status=301 location=https://login/in`,
			"the app answered 301 and Location https://login/in to GET http://app/h, not 2xx",
		},
		"a health check is refused": {
			health, errRefused, `msg=paused reason=app_down url=http://app/h error="connection refused"`,
			"the app does not answer GET http://app/h: connection refused",
		},
		"messages are retried": {
			func(o *Options) { o.CountRefused = true }, errRefused, `msg="app down" url=http://app/x error="connection refused"`, "",
		},
		"probes are seldom": {
			func(o *Options) { o.Interval = time.Hour }, errRefused,
			`msg=paused reason=app_down url=http://app/x error="connection refused"`, "the app does not answer: connection refused",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log apptest.Log
				a := &app{}
				a.set(c.err)
				ctl := start(t, a, func(o *Options) {
					o.URL, o.Logger = "http://app/x", slog.New(slog.NewTextHandler(&log, nil))
					if c.change != nil {
						c.change(o)
					}
				})
				lines := func(want int) {
					t.Helper()
					synctest.Wait()
					if n := strings.Count(log.String(), c.line); n != want || strings.Count(log.String(), "level=WARN") != want {
						t.Fatalf("%d lines, want %d of %s in\n%s", n, want, c.line, log.String())
					}
				}
				time.Sleep(downSoon - time.Millisecond) // an app may start beside the sidecar
				lines(0)
				time.Sleep(2 * time.Millisecond)
				lines(1)
				if h := ctl.Holds(); c.detail != "" && h[0].Detail != c.detail || c.detail == "" && len(h) > 0 {
					t.Errorf("%+v, want %s", h, c.detail)
				}
				time.Sleep(downAgain - time.Second)
				lines(1)
				time.Sleep(time.Second)
				lines(2)
				if ctl.o.Interval > time.Minute || c.err == nil {
					return
				}
				a.set(nil)
				time.Sleep(2 * downAgain)
				lines(2)
				if !strings.Contains(log.String(), "msg=\"app up\" url=http://app/x") {
					t.Error("not up, or without the URL")
				}
				a.set(c.err)
				time.Sleep(3 * time.Second) // an answer that is a failure needs a second one
				lines(3)
				time.Sleep(downAgain)
				lines(4)
			})
		})
	}
}
