package flow

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sidecar/internal/message"
)

func TestAppThatRejectsAllIsHeld(t *testing.T) {
	t.Parallel()
	for _, status := range rejectsStatuses {
		subtest(t, fmt.Sprint(status), nil, func(t *testing.T, c *Control) {
			c.refuse(rejectsThreshold-1, status)
			wantOpen(t, c, true, "shut below the threshold")
			c.refuse(1, status)
			wantHolds(t, c, AppRejectsAll)
			c.refuse(9, status) // in flight while the gate shut
			for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
				time.Sleep(pause*time.Second - time.Millisecond)
				wantOpen(t, c, false, fmt.Sprintf("open before %ds had passed", pause))
				time.Sleep(time.Second) // without an answer, time does not let the limit grow
				wantLimit(t, c, 1, fmt.Sprintf("one message on trial after %ds", pause))
				c.answer(status, 3)
				for range 1 << min(i, 6) {
					wantOpen(t, c, true, "messages that were never tried wait for others")
					c.answer(status, 0)
				}
				wantOpen(t, c, false, "the trial failed")
			}
			time.Sleep(time.Hour) // nothing else waits for the only path
			before := c.Limit()
			c.answer(200, 0)
			time.Sleep(5 * rampStep)
			if wantLimit(t, c, 10, "after a 200"); before != 1 {
				t.Fatalf("limit %d on trial", before)
			}
		})
	}
}

func TestAppThatDoesNotRejectAllIsNotHeld(t *testing.T) {
	t.Parallel()
	one := &message.Message{MessageID: "one", RetryCount: 1}
	refused := func(m *message.Message) func(*Control) {
		return func(c *Control) { c.Report(m, &message.Outcome{Status: 404, At: time.Now()}) }
	}
	for name, report := range map[string]func(*Control){
		"a 200 within five minutes": func(c *Control) { c.answer(200, 0); c.refuse(100, 404) },
		"one that was accepted":     func(c *Control) { c.refuse(9, 404); c.answer(200, 0) },
		"another status":            func(c *Control) { c.refuse(9, 404); c.answer(422, 0) },
		"several, one accepted":     func(c *Control) { c.refuse(5, 404); c.refuse(4, 401); c.answer(200, 0) },
		"a status that parks":       func(c *Control) { c.answer(403, 0) },
		"a status of no wrong path": func(c *Control) { c.answer(409, 0) },
		"a redirect that parks":     func(c *Control) { c.answer(307, 0) },
		"redirects among others":    func(c *Control) { c.refuse(9, 302); c.answer(422, 0) },
		"one message":               refused(one),
		"one message without an id": refused(&message.Message{Body: []byte("one"), RetryCount: 1}),
		"one beginning": func(c *Control) { // only that is hashed, for all workers wait meanwhile
			body := make([]byte, rejectsHashed+1)
			for body[rejectsHashed] = range byte(2 * rejectsThreshold) {
				c.Report(&message.Message{Body: slices.Clone(body), RetryCount: 1}, &outcome404)
			}
		},
		"no answer": func(c *Control) { c.fail(message.FailureTooLarge) },
		"an app that steers": func(c *Control) {
			c.Report(&message.Message{}, &message.Outcome{Status: 404, Disposition: message.DispositionPark, At: time.Now()})
		},
	} {
		subtest(t, name, func(o *Options) { o.ParkOn = []int{307, 403, 422} }, func(t *testing.T, c *Control) {
			for range 20 {
				report(c)
				wantOpen(t, c, true, "held")
			}
		})
	}
}

func TestDifferentMessagesAreCounted(t *testing.T) {
	t.Parallel()
	for name, message := range map[string]func(i int) *message.Message{
		"retried ones, by id":   func(i int) *message.Message { return &message.Message{MessageID: fmt.Sprint(i / 3), RetryCount: 1} },
		"retried ones, by body": func(i int) *message.Message { return &message.Message{Body: fmt.Append(nil, i/3), RetryCount: 1} },
		"retried ones with one id": func(i int) *message.Message {
			return &message.Message{MessageID: "same", Body: fmt.Append(nil, i/3), RetryCount: 1}
		},
		"equal ones, and their retries": func(i int) *message.Message {
			return &message.Message{Body: []byte("equal"), RetryCount: min(1, i%3)}
		},
	} {
		subtest(t, name, nil, func(t *testing.T, c *Control) {
			var shut []int
			for i := range 3 * rejectsThreshold {
				if c.Report(message(i), &outcome404); !c.Open() {
					shut = append(shut, i)
				}
			}
			if want := 3 * (rejectsThreshold - 1); len(shut) == 0 || shut[0] != want {
				t.Fatalf("shut after the answers %v, want from %d on", shut, want)
			}
		})
	}
}

var outcome404 = message.Outcome{Status: 404, At: time.Now().Add(24 * time.Hour)}

func TestRejectsAllAgainAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		c.answer(200, 0)
		c.refuse(50, 404)
		time.Sleep(rejectsQuiet - time.Second)
		c.refuse(1, 404)
		wantOpen(t, c, true, "a 200 was seen within five minutes")
		time.Sleep(time.Second)
		c.refuse(1, 404)
		wantOpen(t, c, false, "open although the last 200 is five minutes old")
	})
}

func TestAnyOtherAnswerEndsTheRejection(t *testing.T) {
	t.Parallel()
	for _, status := range []int{200, 400, 409, 422, 429, 500} {
		subtest(t, fmt.Sprint(status), nil, func(t *testing.T, c *Control) {
			time.Sleep(rejectsEarly + time.Second) // from here on a 400 is about one message
			c.refuse(rejectsThreshold, 404)
			c.fail(message.FailureTimeout) // no answer
			wantOpen(t, c, false, "open after a timeout")
			c.answer(status, 0) // it was in flight
			time.Sleep(5 * rampStep)
			wantLimit(t, c, 10, "after another answer")
			c.refuse(rejectsThreshold-1, 404)
			wantOpen(t, c, true, "messages of the earlier run were counted again")
		})
	}
}

// TestSeveralRefusals: an app that answers each message with another one of the statuses refuses everything, too, and a
// 400 among them says so in the first minute only.
func TestSeveralRefusals(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		statuses []int
		later    bool
		want     string // of the pause; "" without one
	}{
		"a token and rights":        {statuses: []int{401, 403}, want: " refuses every message, the last with status 403"},
		"bodies and paths":          {statuses: []int{400, 404}, want: " refuses every message, the last with status 404"},
		"a proxy with all of them":  {statuses: []int{303, 400, 422, 301, 404}, want: " refuses every message, the last with status 404"},
		"bad messages and old ones": {statuses: []int{400, 404}, later: true},
		"wrong paths and an outage": {statuses: []int{404, 503}},
	} {
		subtest(t, name, nil, func(t *testing.T, c *Control) {
			if tc.later {
				time.Sleep(rejectsEarly + time.Second)
			}
			turn := func(n int) {
				for i := range n {
					c.answer(tc.statuses[i%len(tc.statuses)], 0)
				}
			}
			turn(rejectsThreshold)
			if tc.want == "" {
				turn(10 * rejectsThreshold)
				wantOpen(t, c, true, "held")
				return
			}
			if h := c.Holds(); len(h) != 1 || h[0].Reason != AppRejectsAll || h[0].Detail != tc.want {
				t.Fatalf("holds %v, want %q", h, tc.want)
			}
			for i := range 10 { // for five minutes
				time.Sleep(31 * time.Second)
				c.answer(tc.statuses[i%len(tc.statuses)], 0)
				time.Sleep(trialTime + time.Millisecond)
				wantOpen(t, c, false, "another refusal ended the pause")
			}
			time.Sleep(31 * time.Second)
			c.answer(204, 0)
			time.Sleep(5 * rampStep)
			wantOpen(t, c, true, "a 204 ends the pause")
		})
	}
}

// TestRestartOfTheAppIsTriedAtOnce: the 200s of the app that ended prove nothing about the next one, and neither do its
// rejections: one message is tried at once, and the pauses begin with the shortest.
func TestRestartOfTheAppIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	a := &app{}
	bubbleWith(t, a, nil, func(t *testing.T, c *Control) {
		restart := func() {
			a.set(errRefused)
			time.Sleep(1500 * time.Millisecond)
			a.set(nil)
			time.Sleep(time.Second)
		}
		c.answer(200, 0)
		c.refuse(5, 404)
		restart()
		c.refuse(rejectsThreshold-1, 404)
		wantOpen(t, c, true, "messages of the earlier app were counted")
		c.refuse(1, 404)
		wantOpen(t, c, false, "open although this app never answered 200")
		for _, pause := range []time.Duration{1, 2, 4, 8} {
			time.Sleep(pause*time.Second + time.Millisecond)
			c.answer(404, 1)
			time.Sleep(trialTime)
		}
		restart()
		wantLimit(t, c, 1, "one message on trial after a restart")
		c.answer(404, 0)
		wantOpen(t, c, false, "the trial failed")
		time.Sleep(1001 * time.Millisecond)
		wantOpen(t, c, true, "the pause after a restart is not the shortest")
	})
}

// TestBadMessagesOrAWrongApp: a 400 or a 422 may mean that the app refuses everything only in the first minute after it
// was there for the first time, and before a 2xx. A pause that has begun goes on.
func TestBadMessagesOrAWrongApp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		down, up time.Duration // until the app is there, and since
		before   func(*Control)
		held     bool
	}{
		"at the start":          {held: true},
		"a slow start":          {down: 10 * time.Minute, up: 50 * time.Second, held: true},
		"later":                 {up: 70 * time.Second},
		"a minute after it was": {down: 10 * time.Minute, up: 70 * time.Second},
		"after a 2xx":           {before: func(c *Control) { c.answer(200, 0) }},
		"from the minute on":    {up: 59 * time.Second, before: func(c *Control) { c.refuse(9, 400); time.Sleep(3 * time.Second) }},
	} {
		for _, status := range rejectsEarlyStatuses {
			t.Run(fmt.Sprint(name, status), func(t *testing.T) {
				a := &app{}
				a.set(errRefused)
				bubbleWith(t, a, nil, func(t *testing.T, ctl *Control) {
					time.Sleep(c.down)
					a.set(nil)
					time.Sleep(c.up + 2*time.Second)
					if c.before != nil {
						c.before(ctl)
					}
					ctl.refuse(rejectsThreshold, status)
					wantOpen(t, ctl, !c.held, "after ten refusals")
					if !c.held {
						return
					}
					for range 10 { // for three minutes
						time.Sleep(31 * time.Second)
						ctl.answer(status, 0)
						time.Sleep(trialTime + time.Millisecond)
						wantOpen(t, ctl, false, "the pause does not go on")
					}
				})
			})
		}
	}
}
