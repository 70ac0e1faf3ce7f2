package flow

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/message"
)

func TestNothingIsTakenBeforeTheAppAnswers(t *testing.T) {
	t.Parallel()
	a := &app{}
	a.set(errSick)
	bubbleWith(t, a, nil, func(t *testing.T, c *Control) {
		time.Sleep(10 * time.Second)
		if wantHolds(t, c, AppDown); c.AppUp() {
			t.Fatal("up before the first answer")
		}
		changed := c.Changed()
		a.set(nil)
		<-changed
		if wantHolds(t, c); !c.AppUp() || c.gauge(t, "sidecar_app_up") != 1 {
			t.Fatal("not up")
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
			a := &app{}
			bubbleWith(t, a, nil, func(t *testing.T, c *Control) {
				time.Sleep(1500 * time.Millisecond)
				a.set(tc.err)
				for range tc.probes {
					wantOpen(t, c, true, "paused too early")
					time.Sleep(time.Second)
				}
				wantOpen(t, c, false, "still open")
				a.set(nil)
				<-c.Changed()
				wantLimit(t, c, 1, "a ramp when the app has returned")
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
	bubbleWith(t, &app{}, func(o *Options) { o.Health = "http://app/h" }, func(t *testing.T, c *Control) {
		c.fail(message.FailureRefused)
		if wantHolds(t, c, AppDown); c.AppUp() {
			t.Fatal("up after a refused POST")
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
	a := &app{}
	a.set(errRefused)
	bubbleWith(t, a, func(o *Options) { o.CountRefused = true }, func(t *testing.T, c *Control) {
		time.Sleep(5 * time.Second)
		c.fail(message.FailureRefused)
		if wantHolds(t, c); c.AppUp() {
			t.Fatal("up")
		}
		for range breakerThreshold {
			c.fail(message.FailureRefused)
		}
		wantHolds(t, c, Breaker)
		a.set(errSick) // it listens again, but its health check says no
		time.Sleep(3 * time.Second)
		wantHolds(t, c, AppDown) // a health check that fails pauses in this mode too
	})
}

func TestRampDoublesEachRound(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for want := 1; want <= 10; want++ {
			if wantLimit(t, c, want, "one more for each answer"); c.Ramping() != (want < 10) {
				t.Fatalf("ramping %v at %d", c.Ramping(), want)
			}
			c.answer(200, 0)
		}
		c.answer(200, 0)
		if wantLimit(t, c, 10, "the full concurrency"); c.gauge(t, "sidecar_concurrency_limit") != 10 {
			t.Fatal("the gauge shows another limit")
		}
	})
}

func TestRampGrowsWithTime(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for _, want := range []int{1, 2, 4, 8, 10, 10} {
			wantLimit(t, c, want, "although nothing was answered yet")
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

// TestTrialsLimitTogether: the breaker trips while the app that refused everything is on trial. The limit of a trial does
// not grow with time.
func TestTrialsLimitTogether(t *testing.T) {
	t.Parallel()
	bubbleWith(t, &app{}, func(o *Options) { o.Concurrency = 20 }, func(t *testing.T, c *Control) {
		want := func(limit int, when string) {
			t.Helper()
			time.Sleep(6 * rampStep)
			if wantLimit(t, c, limit, when); c.Ramping() != (limit < 20) {
				t.Fatalf("%s: ramping %v", when, c.Ramping())
			}
		}
		c.refuse(rejectsThreshold, 404)
		time.Sleep(time.Second)
		want(1, "one message is risked")
		for range 2 * 20 {
			c.fail(message.FailureTimeout)
		}
		wantHolds(t, c, Breaker)
		time.Sleep(time.Second)
		want(1, "after the breaker's pause one message is risked still")
		c.answer(500, 0)
		want(breakerRisk, "the app refuses no more, and the breaker's trial goes on")
		c.answer(200, 0)
		want(20, "the app is back")
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
		wantHolds(t, c, Operator, RetryAfter)
		if h := c.Holds(); !h[0].Until.IsZero() || h[1].Until.IsZero() {
			t.Fatalf("only the timed hold has an end: %v", h)
		}
		if !c.Lift(Operator) || c.Lift(Operator) {
			t.Fatal("Lift does not distinguish the first from the second")
		}
		wantOpen(t, c, false, "open although Retry-After still holds")
		time.Sleep(31 * time.Second)
		wantHolds(t, c)
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
		wantHolds(t, c, Order)
		wantOpen(t, c, true, "shut although it is only shown")
		c.Hold(Operator, "POST /pause")
		wantOpen(t, c, false, "open although an operator paused")
		c.Lift(Operator)
		c.Lift(Order)
		wantHolds(t, c)
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

// TestOneAtATimeIsATrial: a limit of one message in flight is a trial too, in which no batch is sent.
func TestOneAtATimeIsATrial(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*Control){
		"an app that refuses everything": func(c *Control) { c.refuse(rejectsThreshold, 404) },
		"an app that fails everything":   func(c *Control) { c.trip() },
	} {
		subtest(t, name, func(o *Options) { o.Concurrency = 1 }, func(t *testing.T, c *Control) {
			before := c.Ramping()
			fail(c)
			time.Sleep(1100 * time.Millisecond)
			wantOpen(t, c, true, "no trial")
			during := c.Ramping()
			if c.answer(200, 0); before || !during || c.Ramping() {
				t.Errorf("on trial: before %v, during %v, after %v", before, during, c.Ramping())
			}
		})
	}
}
