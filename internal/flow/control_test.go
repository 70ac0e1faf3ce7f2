package flow

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
)

var (
	errRefused = errors.New("connection refused")
	errSick    = errors.New("503")
)

// app is an app as the probe sees it.
type app struct{ err atomic.Pointer[error] }

func (a *app) set(err error) { a.err.Store(&err) }

func (a *app) probe(context.Context) error {
	if p := a.err.Load(); p != nil {
		return *p
	}
	return nil
}

// start runs a Control against a in the current synctest bubble and stops it with the test.
func start(t *testing.T, a *app, change func(*Options)) *Control {
	t.Helper()
	o := Options{
		Concurrency: 10, Probe: a.probe, Interval: time.Second,
		Refused: func(err error) bool { return errors.Is(err, errRefused) },
		Logger:  slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&o)
	}
	c := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return c
}

// bubble runs f with a Control whose app is there, in virtual time.
func bubble(t *testing.T, f func(t *testing.T, c *Control)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &app{}, nil)
		synctest.Wait()
		f(t, c)
	})
}

func reasons(c *Control) []Reason {
	var out []Reason
	for _, h := range c.Holds() {
		out = append(out, h.Reason)
	}
	return out
}

// wantOpen checks the gate; wrong says what it means when it is not as wanted.
func wantOpen(t *testing.T, c *Control, want bool, wrong string) {
	t.Helper()
	if c.Open() != want {
		t.Fatalf("%s: open %v, holds %v", wrong, !want, c.Holds())
	}
}

// gauge is the sum of the gauges of that name.
func (c *Control) gauge(t *testing.T, name string) (sum float64) {
	t.Helper()
	families, err := c.o.Registerer.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func (c *Control) answer(status, retries int) {
	c.Report(&message.Message{RetryCount: retries, MaxRetries: 10}, &message.Outcome{Status: status, At: time.Now()})
}

func (c *Control) fail(f message.Failure) {
	c.Report(&message.Message{MaxRetries: 10}, &message.Outcome{Failure: f, Err: errRefused})
}

func TestNothingIsTakenBeforeTheAppAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &app{}
		a.set(errSick)
		c := start(t, a, nil)
		time.Sleep(10 * time.Second)
		if c.Open() || c.AppUp() || !slices.Equal(reasons(c), []Reason{AppDown}) {
			t.Fatalf("open %v up %v holds %v before the first answer", c.Open(), c.AppUp(), c.Holds())
		}
		changed := c.Changed()
		a.set(nil)
		<-changed
		if !c.Open() || !c.AppUp() || c.gauge(t, "sidecar_app_up") != 1 {
			t.Fatalf("still shut: %v", c.Holds())
		}
	})
}

func TestAppGoesAway(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		err    error
		probes int // needed to believe it
	}{{"refused", errRefused, 1}, {"sick", errSick, 2}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &app{}
				c := start(t, a, nil)
				time.Sleep(1500 * time.Millisecond)
				a.set(tc.err)
				for range tc.probes {
					wantOpen(t, c, true, "paused too early")
					time.Sleep(time.Second)
				}
				wantOpen(t, c, false, "still open")
				a.set(nil)
				<-c.Changed()
				if !c.Open() || c.Limit() != 1 {
					t.Fatalf("open %v limit %d after the app returned, want a ramp from 1", c.Open(), c.Limit())
				}
			})
		})
	}
}

func TestAnswersReplaceProbes(t *testing.T) {
	t.Parallel()
	for _, connects := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var probes atomic.Int64
			c := start(t, &app{}, func(o *Options) {
				o.Connects = connects
				o.Probe = func(context.Context) error { probes.Add(1); return nil }
			})
			time.Sleep(500 * time.Millisecond)
			for range 10 {
				c.answer(503, 0)
				time.Sleep(time.Second)
			}
			if n := probes.Load(); connects && n != 1 || !connects && n != 11 {
				t.Errorf("%d probes beside answered messages, connects %v", n, connects)
			}
			time.Sleep(10 * time.Second)
			if n := probes.Load(); connects && n != 11 {
				t.Errorf("%d probes after 10 idle seconds", n)
			}
		})
	}
}

func TestRefusedPostPausesAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &app{}, func(o *Options) { o.Health = "http://app/h" })
		synctest.Wait()
		c.fail(message.FailureRefused)
		if c.Open() || c.AppUp() {
			t.Fatal("a refused POST left the gate open")
		}
		if h := c.Holds(); h[0].Detail != "the app does not answer: connection refused" { // it was not the health check
			t.Errorf("%+v", h)
		}
		time.Sleep(1100 * time.Millisecond)
		wantOpen(t, c, true, "the next probe found the app, the gate stayed shut")
	})
}

func TestCountRefusedNeverHoldsForTheApp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &app{}
		a.set(errRefused)
		c := start(t, a, func(o *Options) { o.CountRefused = true })
		time.Sleep(5 * time.Second)
		c.fail(message.FailureRefused)
		if !c.Open() || c.AppUp() {
			t.Fatalf("open %v up %v, want open and not up", c.Open(), c.AppUp())
		}
		for range breakerThreshold {
			c.fail(message.FailureRefused)
		}
		if !slices.Equal(reasons(c), []Reason{Breaker}) {
			t.Fatalf("holds %v, want the breaker's", reasons(c))
		}
		a.set(errSick) // it listens again, but its health check says no
		time.Sleep(3 * time.Second)
		if !slices.Contains(reasons(c), AppDown) {
			t.Fatalf("holds %v: a health check that fails pauses in this mode too", reasons(c))
		}
	})
}

func TestRampDoublesEachRound(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for want := 1; want <= 10; want++ {
			if c.Limit() != want || c.Ramping() != (want < 10) {
				t.Fatalf("limit %d ramping %v after %d answers", c.Limit(), c.Ramping(), want-1)
			}
			c.answer(200, 0)
		}
		c.answer(200, 0)
		if c.Limit() != 10 || c.gauge(t, "sidecar_concurrency_limit") != 10 {
			t.Fatalf("limit %d, want the full concurrency", c.Limit())
		}
	})
}

func TestRampGrowsWithTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for _, want := range []int{1, 2, 4, 8, 10, 10} {
			if c.Limit() != want {
				t.Fatalf("limit %d, want %d although nothing was answered yet", c.Limit(), want)
			}
			changed := c.Changed()
			time.Sleep(rampStep + time.Millisecond/100)
			select {
			case <-changed:
			default:
				if want < 10 {
					t.Fatal("no signal that the limit grew")
				}
			}
		}
	})
}

// TestTrialsLimitTogether: the breaker trips while the app that refused everything is on trial.
func TestTrialsLimitTogether(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		want := func(limit int, when string) {
			t.Helper()
			time.Sleep(5 * rampStep)
			if !c.Open() || c.Limit() != limit || limit < 10 && !c.Ramping() {
				t.Fatalf("%s: limit %d ramping %v holds %v, want %d", when, c.Limit(), c.Ramping(), c.Holds(), limit)
			}
		}
		c.refuse(rejectsThreshold, 404)
		time.Sleep(time.Second)
		want(1, "one message is risked")
		for range breakerThreshold {
			c.fail(message.FailureTimeout)
		}
		if !slices.Equal(reasons(c), []Reason{Breaker}) {
			t.Fatalf("holds %v after %d timeouts", reasons(c), breakerThreshold)
		}
		time.Sleep(time.Second)
		want(1, "after the breaker's pause one message is risked still")
		c.answer(500, 0)
		want(breakerRisk, "the app refuses no more, and the breaker's trial goes on")
		c.answer(200, 0)
		want(10, "the app is back")
	})
}

// TestPauseOfATrialThatHasEnded: a failure that was counted before an answer closed the breaker begins no pause after it.
func TestPauseOfATrialThatHasEnded(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for range breakerThreshold {
			c.answer(500, 0)
		}
		time.Sleep(2 * time.Second)
		c.answer(200, 0)
		if pause := c.breaker.pause(onTrial, "late"); pause != 0 || !c.Open() {
			t.Fatalf("a pause of %v, holds %v", pause, c.Holds())
		}
	})
}

// TestEndOfAPauseIsLimited: a consumer that finds the gate open at the end of a pause must not find the full limit.
func TestEndOfAPauseIsLimited(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for range 1000 {
			time.Sleep(10 * rampStep) // the limit is full
			c.rejects.pause(closed, "refused")
			found := make(chan int)
			go func() {
				for !c.Open() {
				}
				found <- c.Limit()
			}()
			c.rejects.end()
			if limit := <-found; limit > 2 {
				t.Fatalf("limit %d", limit)
			}
		}
	})
}

func TestHoldsAddUp(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		if !c.Hold(Operator, "POST /pause") || c.Hold(Operator, "again") {
			t.Fatal("Hold does not distinguish the first from the second")
		}
		c.PauseFor(time.Minute)
		c.PauseFor(time.Second) // the longer one wins
		time.Sleep(30 * time.Second)
		if got := reasons(c); !slices.Equal(got, []Reason{Operator, RetryAfter}) {
			t.Fatalf("holds %v", got)
		}
		if h := c.Holds(); !h[0].Until.IsZero() || h[1].Until.IsZero() {
			t.Fatalf("only the timed hold has an end: %v", h)
		}
		if !c.Lift(Operator) || c.Lift(Operator) {
			t.Fatal("Lift does not distinguish the first from the second")
		}
		wantOpen(t, c, false, "open although Retry-After still holds")
		time.Sleep(31 * time.Second)
		if !c.Open() || c.gauge(t, "sidecar_paused") != 0 {
			t.Fatalf("holds %v after the pause", c.Holds())
		}
	})
}

// TestOrderKeepsTheGateOpen: it is a reason that is shown, and no other reason is hidden by it. Shown again, it has the new
// detail, and the time since which it is a reason.
func TestOrderKeepsTheGateOpen(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		first, since := c.Show(Order, "a window"), time.Now()
		time.Sleep(time.Second)
		again := c.Show(Order, "a window of held messages")
		if h := c.Holds(); !first || again || h[0].Detail != "a window of held messages" || !h[0].Since.Equal(since) {
			t.Errorf("first %t, again %t, %+v", first, again, h)
		}
		if !c.Open() || c.gauge(t, "sidecar_paused") != 1 || !slices.Equal(reasons(c), []Reason{Order}) {
			t.Fatalf("open %v, holds %v", c.Open(), reasons(c))
		}
		c.Hold(Operator, "POST /pause")
		wantOpen(t, c, false, "open although an operator paused")
		c.Lift(Operator)
		c.Lift(Order)
		if !c.Open() || c.gauge(t, "sidecar_paused") != 0 {
			t.Fatalf("holds %v", c.Holds())
		}
	})
}

func TestTimedHoldProlongedOrReplaced(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		c.PauseFor(time.Second)
		c.PauseFor(3 * time.Second)
		time.Sleep(2 * time.Second)
		wantOpen(t, c, false, "the shorter timer ended the longer pause")
		c.Hold(RetryAfter, "permanently") // an untimed hold takes the timer's place
		time.Sleep(time.Hour)
		wantOpen(t, c, false, "a stopped timer lifted the hold")
		if c.HoldFor(RetryAfter, time.Second, "", nil) {
			t.Fatal("a timed hold replaced one without an end")
		}
	})
}

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
				time.Sleep(downSoon + time.Millisecond)
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

func TestAppThatStartsBesideTheSidecarIsNotLogged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log apptest.Log
		a := &app{}
		a.set(errRefused)
		start(t, a, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		time.Sleep(500 * time.Millisecond)
		a.set(nil)
		time.Sleep(2 * downAgain)
		if strings.Contains(log.String(), "paused") {
			t.Error(log.String())
		}
	})
}

// TestOneAtATimeIsATrial: a limit of one message in flight is a trial too, in which no batch is sent.
func TestOneAtATimeIsATrial(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*Control){
		"an app that refuses everything": func(c *Control) { c.refuse(rejectsThreshold, 404) },
		"an app that fails everything":   func(c *Control) { c.trip() },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, &app{}, func(o *Options) { o.Concurrency = 1 })
				synctest.Wait()
				if c.Ramping() {
					t.Fatal("on trial without a failure")
				}
				fail(c)
				time.Sleep(1100 * time.Millisecond)
				if !c.Open() || !c.Ramping() {
					t.Errorf("open %v, on trial %v", c.Open(), c.Ramping())
				}
				c.answer(200, 0)
				if c.Ramping() {
					t.Error("on trial after a 200")
				}
			})
		})
	}
}

// TestNoLineAfterTheEnd: a POST that is refused after Run has returned is logged, and nothing reminds of it.
func TestNoLineAfterTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log apptest.Log
		c := New(Options{
			Concurrency: 1, Probe: (&app{}).probe, Refused: func(error) bool { return true }, Interval: time.Second,
			Logger: slog.New(slog.NewTextHandler(&log, nil)), Registerer: prometheus.NewRegistry(),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || !c.AppUp() {
			t.Fatalf("up %v, error %v", c.AppUp(), err)
		}
		c.fail(message.FailureRefused)
		time.Sleep(3 * downAgain)
		if n := strings.Count(log.String(), "reason=app_down"); n != 1 {
			t.Errorf("%d lines\n%s", n, log.String())
		}
	})
}
