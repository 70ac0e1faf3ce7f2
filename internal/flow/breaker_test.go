package flow

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/message"
)

func TestBreakerTrips(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		trips  bool
		report func(*Control)
	}{
		"5xx":                  {true, func(c *Control) { c.answer(500, 0) }},
		"599":                  {true, func(c *Control) { c.answer(599, 0) }},
		"timeout":              {true, func(c *Control) { c.fail(message.FailureTimeout) }},
		"reset":                {true, func(c *Control) { c.fail(message.FailureReset) }},
		"an answer in between": {false, func(c *Control) { c.answer(500, 0); c.answer(500, 0); c.answer(404, 0) }},
		"retried messages":     {false, func(c *Control) { c.answer(500, 3) }},
		"invalid statuses":     {false, func(c *Control) { c.answer(999, 0) }},
		"malformed answers":    {false, func(c *Control) { c.fail(message.FailureMalformed) }},
		"too large messages":   {false, func(c *Control) { c.fail(message.FailureTooLarge) }},
		"our own stop":         {false, func(c *Control) { c.fail(message.FailureInterrupted) }},
		"an app that steers": {false, func(c *Control) {
			c.Report(&message.Message{}, &message.Outcome{Status: 500, Disposition: message.DispositionRetry})
		}},
	} {
		subtest(t, name, nil, func(t *testing.T, c *Control) {
			for range breakerThreshold - 1 {
				tc.report(c)
			}
			wantOpen(t, c, true, "tripped below the threshold")
			if tc.trips {
				tc.report(c)
				wantHolds(t, c, Breaker)
				return
			}
			for range 10 * breakerThreshold {
				tc.report(c)
			}
			wantOpen(t, c, true, "tripped")
		})
	}
}

func TestBreakerTrialsAndCloses(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		c.trip()
		for _, pause := range []time.Duration{1, 2, 3, 3} {
			time.Sleep(pause*time.Second - time.Millisecond)
			wantOpen(t, c, false, fmt.Sprintf("open before %ds had passed", pause))
			time.Sleep(time.Minute) // without a message no trial ends
			for range 1000 {
				c.answer(500, 0)
				wantOpen(t, c, true, "messages that were never tried end no trial")
			}
			time.Sleep(trialTime - time.Millisecond)
			c.answer(500, 4)
			wantOpen(t, c, true, "a trial was too short")
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		wantOpen(t, c, false, "a trial without an answer goes on")
		time.Sleep(4 * time.Second)
		c.answer(200, 0)
		for range breakerThreshold - 1 {
			c.answer(500, 0)
		}
		wantOpen(t, c, true, "one answer did not close the breaker")
		c.answer(500, 0)
		time.Sleep(1100 * time.Millisecond)
		wantOpen(t, c, true, "a closed breaker starts again with the shortest pause")
	})
}

// TestLateAnswer: an answer during the first pause may be from before the outage; later ones are of a trial.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		c.trip()
		c.answer(200, 0)
		wantOpen(t, c, false, "a late answer ended the first pause")
		time.Sleep(1001 * time.Millisecond)
		c.answer(500, 0)
		time.Sleep(trialTime)
		synctest.Wait()
		wantOpen(t, c, false, "the trial goes on")
		c.answer(200, 0)
		wantOpen(t, c, true, "an attempt that took longer than its trial proves nothing")
		time.Sleep(10 * time.Second)
		wantOpen(t, c, true, "the pause goes on")
	})
}

// TestTrialDefersWhatFailedBefore: of messages that failed before a trial takes two that failed least; those that were
// never tried are not counted among them.
func TestTrialDefersWhatFailedBefore(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		tried := func(want, n, retries int) {
			t.Helper()
			if got := c.repeated(n, retries); got != want {
				t.Fatalf("%d of %d messages with %d retries are tried, want %d", got, n, retries, want)
			}
		}
		next := func(pause time.Duration) {
			t.Helper()
			time.Sleep(trialTime + pause + time.Millisecond)
			wantOpen(t, c, true, "no trial")
		}
		tried(100, 100, 1)
		c.trip()
		tried(100, 100, 1) // a worker had them
		next(0)
		tried(breakerRepeats, 10, 3)
		tried(0, 10, 2)
		tried(100, 100, 0)
		next(2 * time.Second)
		tried(0, 10, 3) // those with 2 come first
		tried(breakerRepeats, 10, 2)
		next(3 * time.Second)
		tried(breakerRepeats, breakerRepeats, 1) // none is deferred
		time.Sleep(10 * time.Second)
		wantOpen(t, c, true, "a trial ended without a failure")
		tried(0, trialDeferred-1, 5)
		wantOpen(t, c, true, "paused early")
		tried(0, 1, 5)
		wantOpen(t, c, false, "messages go round and round")
		next(2 * time.Second)
		c.answer(200, 1)
		tried(100, 100, 1)
	})
}

// TestFewMessagesAreParkedOnTrial: where each failure parks its message.
func TestFewMessagesAreParkedOnTrial(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]*message.Message{
		"no retries":          {},
		"a status that parks": {MaxRetries: 10},
	} {
		subtest(t, name, func(o *Options) { o.ParkOn = []int{503} }, func(t *testing.T, c *Control) {
			c.trip()
			for _, pause := range []time.Duration{1, 2, 4, 8, 10, 10} {
				time.Sleep(pause*time.Second - time.Millisecond)
				wantOpen(t, c, false, fmt.Sprintf("open before %ds had passed", pause))
				time.Sleep(2 * time.Millisecond)
				for range breakerFew {
					wantOpen(t, c, true, "a trial was too short")
					c.Report(m, &message.Outcome{Status: 503, At: time.Now()})
				}
				wantOpen(t, c, false, "more messages are parked")
			}
			time.Sleep(10*time.Second + time.Millisecond)
			if c.Limit() != breakerFew {
				t.Errorf("limit %d", c.Limit())
			}
		})
	}
}

// TestRetriesAloneTrip: a sidecar that is restarted in an outage may find only messages that failed before. A few of
// them, or many while others succeed, are bad messages.
func TestRetriesAloneTrip(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		messages int
		good     bool
		want     int // rounds until the pause
	}{
		"an outage":        {breakerThreshold, false, 2},
		"few bad messages": {breakerThreshold - 1, false, 0},
		"others succeed":   {8 * breakerThreshold, true, 0},
	} {
		subtest(t, name, nil, func(t *testing.T, c *Control) {
			paused := 0
			for round := 1; round <= 10 && paused == 0; round++ {
				for i := range tc.messages {
					m := &message.Message{MessageID: fmt.Sprint(i), RetryCount: round, MaxRetries: 10}
					if c.Report(m, &message.Outcome{Status: 500, At: time.Now()}); !c.Open() {
						paused = round
					}
				}
				if tc.good {
					c.answer(200, 0)
				}
				time.Sleep(5 * time.Second)
			}
			if paused != tc.want {
				t.Errorf("paused in round %d, want %d", paused, tc.want)
			}
		})
	}
}

// TestNextOutageDefersAnew: the first trial of an outage does not choose by the retries of the messages that the last
// trial of the outage before it deferred.
func TestNextOutageDefersAnew(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for outage, retries := range []int{1, 3} {
			c.trip()
			time.Sleep(1100 * time.Millisecond)
			if tried := c.repeated(breakerRepeats+1, retries); tried != breakerRepeats {
				t.Fatalf("outage %d: %d messages with %d retries are tried, want %d", outage, tried, retries, breakerRepeats)
			}
			c.answer(200, 0)
		}
	})
}
