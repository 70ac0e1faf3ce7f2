package flow

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// refuse answers n first attempts with status.
func (c *Control) refuse(n, status int) {
	for range n {
		c.answer(status, 0)
	}
}

func TestAppThatRejectsAllIsHeld(t *testing.T) {
	t.Parallel()
	for _, status := range rejectsStatuses {
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Control) {
				c.refuse(rejectsThreshold-1, status)
				wantOpen(t, c, true, "shut below the threshold")
				c.refuse(1, status)
				if !slices.Equal(reasons(c), []Reason{AppRejectsAll}) || c.gauge(t, "sidecar_paused") != 1 {
					t.Fatalf("holds %v after %d refused messages", reasons(c), rejectsThreshold)
				}
				c.refuse(9, status) // in flight while the gate shut
				for i, pause := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
					time.Sleep(pause*time.Second - time.Millisecond)
					wantOpen(t, c, false, fmt.Sprintf("open before %ds had passed", pause))
					time.Sleep(time.Second) // without an answer, time does not let the limit grow
					if !c.Open() || c.Limit() != 1 {
						t.Fatalf("after %ds: open %v, limit %d, want one message on trial", pause, c.Open(), c.Limit())
					}
					c.answer(status, 3)
					for range 1 << min(i, 6) {
						wantOpen(t, c, true, "messages that were never tried wait for others")
						c.answer(status, 0)
					}
					wantOpen(t, c, false, "the trial failed")
				}
				time.Sleep(time.Hour) // nothing else waits for the only path
				limit := c.Limit()
				c.answer(200, 0)
				time.Sleep(5 * rampStep)
				if limit != 1 || !c.Open() || c.Limit() != 10 {
					t.Fatalf("limit %d on trial, open %v limit %d after a 200", limit, c.Open(), c.Limit())
				}
			})
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := start(t, &app{}, func(o *Options) { o.ParkOn = []int{307, 403, 422} })
				synctest.Wait()
				for range 20 {
					report(c)
					wantOpen(t, c, true, "held")
				}
			})
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Control) {
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
		t.Run(fmt.Sprint(status), func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Control) {
				time.Sleep(rejectsEarly + time.Second) // from here on a 400 is about one message
				c.refuse(rejectsThreshold, 404)
				c.fail(message.FailureTimeout) // no answer
				wantOpen(t, c, false, "open after a timeout")
				c.answer(status, 0) // it was in flight
				time.Sleep(5 * rampStep)
				if !c.Open() || c.Limit() != 10 {
					t.Fatalf("open %v limit %d after a %d", c.Open(), c.Limit(), status)
				}
				c.refuse(rejectsThreshold-1, 404)
				wantOpen(t, c, true, "messages of the earlier run were counted again")
			})
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *Control) {
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
		})
	}
}

// TestRestartOfTheAppIsTriedAtOnce: the 200s of the app that ended prove nothing about the next one, and neither do its
// rejections: one message is tried at once, and the pauses begin with the shortest.
func TestRestartOfTheAppIsTriedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := &app{}
		c := start(t, a, nil)
		synctest.Wait()
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
		if !c.Open() || c.Limit() != 1 {
			t.Fatalf("open %v limit %d after a restart, want one message on trial", c.Open(), c.Limit())
		}
		c.answer(404, 0)
		wantOpen(t, c, false, "the trial failed")
		time.Sleep(1001 * time.Millisecond)
		wantOpen(t, c, true, "the pause after a restart is not the shortest")
	})
}

// TestRejectsDefersWhatFailedBefore, but not where the message may have another path than the one that rejects.
func TestRejectsDefersWhatFailedBefore(t *testing.T) {
	t.Parallel()
	for routes, want := range []int{1, 10} {
		routed(t, routes, func(t *testing.T, c *Control) {
			c.refuse(rejectsThreshold, 404)
			time.Sleep(1001 * time.Millisecond)
			if tried := c.repeated(10, 2); tried != want {
				t.Errorf("%d routes: %d messages that failed before are tried, want %d", routes, tried, want)
			}
			if c.answer(404, 2); c.Open() == (routes > 0) {
				t.Errorf("%d routes: open %v after a failure", routes, c.Open())
			}
		})
	}
}

// on answers n first attempts that a route took.
func (c *Control) on(route, n, status int) {
	for range n {
		c.Report(&message.Message{}, &message.Outcome{Status: status, At: time.Now(), Route: route, URL: fmt.Sprintf("http://app/%d", route)})
	}
}

// routed is bubble for an app with n routes.
func routed(t *testing.T, n int, f func(t *testing.T, c *Control)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := start(t, &app{}, func(o *Options) { o.URL, o.Routes = "http://app/", n })
		synctest.Wait()
		f(t, c)
	})
}

func TestEachPathIsJudgedAlone(t *testing.T) {
	t.Parallel()
	routed(t, 2, func(t *testing.T, c *Control) {
		c.on(1, rejectsThreshold-1, 404)
		c.on(2, rejectsThreshold-1, 404)
		c.on(0, rejectsThreshold-1, 404)
		wantOpen(t, c, true, "answers of different paths were added up")
		c.on(2, 100, 200)
		c.on(0, 100, 200)
		c.on(1, 1, 404)
		if h := c.Holds(); len(h) != 1 || h[0].Detail != "http://app/1 answers every message with status 404" {
			t.Fatalf("a 2xx on other paths proved this one: %v", h)
		}
		c.on(2, 1, 404)
		time.Sleep(1001 * time.Millisecond)
		if !c.Open() || c.Limit() != 1 {
			t.Fatalf("open %v, limit %d, want one message on trial", c.Open(), c.Limit())
		}
		c.on(2, 1, 200) // these end no trial of route 1
		c.on(0, 1, 500)
		if c.Limit() != 1 {
			t.Fatal("an answer on another path ended the trial")
		}
		c.on(1, 1, 404)
		wantOpen(t, c, false, "the trial failed")
		time.Sleep(2001 * time.Millisecond)
		c.on(1, 1, 204)
		time.Sleep(5 * rampStep)
		if !c.Open() || c.Limit() != 10 {
			t.Fatalf("open %v, limit %d after a 204 on the path", c.Open(), c.Limit())
		}
	})
}

func TestTwoPathsReject(t *testing.T) {
	t.Parallel()
	routed(t, 2, func(t *testing.T, c *Control) {
		c.on(1, rejectsThreshold, 404)
		wantOpen(t, c, false, "one path rejects")
		c.on(2, rejectsThreshold, 401) // in flight
		time.Sleep(1001 * time.Millisecond)
		c.on(2, 1, 401)
		wantOpen(t, c, false, "the trial of the second path failed")
		time.Sleep(2001 * time.Millisecond)
		c.on(1, 1, 204)
		if !c.Open() || c.Limit() != 1 {
			t.Fatalf("open %v, limit %d: the second path is still on trial", c.Open(), c.Limit())
		}
		c.on(1, rejectsThreshold, 404)
		wantOpen(t, c, true, "a path that accepted a message five minutes ago rejects all")
		c.on(2, 1, 204)
		time.Sleep(5 * rampStep)
		if !c.Open() || c.Limit() != 10 {
			t.Fatalf("open %v, limit %d after each path took a message", c.Open(), c.Limit())
		}
	})
}

// TestOtherPathsDoNotWaitForATrial: the last message of a path that rejects may be parked, and none may follow.
func TestOtherPathsDoNotWaitForATrial(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(c *Control){
		"after a pause":   func(c *Control) { time.Sleep(1001 * time.Millisecond) },
		"after a restart": func(c *Control) { time.Sleep(time.Minute); c.rejects.restart() },
	} {
		t.Run(name, func(t *testing.T) {
			routed(t, 1, func(t *testing.T, c *Control) {
				c.on(1, rejectsThreshold, 404)
				begin(c)
				time.Sleep(rejectsPauseMax - time.Millisecond)
				if c.Limit() != 1 {
					t.Fatalf("limit %d on trial", c.Limit())
				}
				time.Sleep(2 * time.Millisecond)
				if c.on(0, 1, 200); c.Limit() != 10 {
					t.Fatalf("limit %d long after the last message of the path", c.Limit())
				}
				c.on(1, 1, 404)
				wantOpen(t, c, false, "the path still rejects")
			})
		})
	}
}

// TestRedirectsAreARefusal: an app may answer several of them, each with another Location.
func TestRedirectsAreARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log apptest.Log
		c := start(t, &app{}, func(o *Options) {
			o.URL, o.Logger = "http://app/events", slog.New(slog.NewTextHandler(&log, nil))
		})
		synctest.Wait()
		for i, status := range []int{301, 302, 303, 307, 308, 300, 304, 302, 301, 308} {
			wantOpen(t, c, true, "shut below the threshold")
			c.Report(&message.Message{}, &message.Outcome{Status: status, At: time.Now(), Location: fmt.Sprint("https://login.example/", i)})
		}
		if h := c.Holds(); len(h) != 1 || h[0].Detail != "http://app/events answers every message with status 308 and Location https://login.example/9" {
			t.Errorf("holds %v", h)
		}
		if line := "msg=paused reason=app_rejects_all url=http://app/events status=308 location=https://login.example/9"; strings.Count(log.String(), line) != 1 {
			t.Errorf("want one %q in\n%s", line, log.String())
		}
		time.Sleep(1001 * time.Millisecond)
		c.answer(302, 0)
		wantOpen(t, c, false, "the trial was redirected")
		time.Sleep(2001 * time.Millisecond)
		c.answer(204, 0)
		if line := "msg=resumed reason=app_rejects_all url=http://app/events status=204"; strings.Count(log.String(), line) != 1 {
			t.Errorf("want one %q in\n%s", line, log.String())
		}
	})
}

// TestRedirectsAfterA2xx: no redirect is about one message, so ten of them in a row need no quiet time; but a 2xx among
// them, or another refusal, shows that messages differ.
func TestRedirectsAfterA2xx(t *testing.T) {
	t.Parallel()
	bubble(t, func(t *testing.T, c *Control) {
		for range 10 {
			c.answer(200, 0)
			c.refuse(rejectsThreshold-1, 302)
		}
		c.answer(200, 0)
		for range 5 * rejectsThreshold {
			c.answer(302, 0)
			c.answer(404, 0)
		}
		wantOpen(t, c, true, "held between messages that the app accepts, or by other refusals")
		c.refuse(rejectsThreshold-1, 307)
		c.answer(404, 0)
		for range 2 * rejectsThreshold {
			c.Report(&message.Message{MessageID: "one", RetryCount: 1}, &message.Outcome{Status: 302, At: time.Now()})
		}
		wantOpen(t, c, true, "held by redirects of one message")
		c.refuse(rejectsThreshold-1, 307)
		wantOpen(t, c, false, "open although ten messages in a row were redirected")
		time.Sleep(1001 * time.Millisecond)
		c.answer(204, 0)
		time.Sleep(5 * rampStep)
		wantOpen(t, c, true, "a 204 ends the pause")
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
				synctest.Test(t, func(t *testing.T) {
					a := &app{}
					a.set(errRefused)
					ctl := start(t, a, nil)
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

// TestDocsNameTheRefusals: each list of these statuses in the documents is this one.
func TestDocsNameTheRefusals(t *testing.T) {
	t.Parallel()
	list := regexp.MustCompile(`401, 403(?:(?:,| or| and) \d{3})+`)
	for _, file := range []string{
		"README.md", "CHANGELOG.md", "docs/architecture.md", "docs/runbooks/README.md", "docs/runbooks/RetryStorm.md",
		"docs/reliability.md", "docs/dead-letters.md", "docs/decisions/0029-an-app-that-refuses-everything.md",
	} {
		found := list.FindAllString(string(must.Get(os.ReadFile(filepath.Join("..", "..", file)))(t)), -1)
		if len(found) == 0 {
			t.Errorf("%s has no such list", file)
		}
		for _, text := range found {
			var statuses []int
			for _, s := range regexp.MustCompile(`\d+`).FindAllString(text, -1) {
				statuses = append(statuses, must.Get(strconv.Atoi(s))(t))
			}
			if !slices.Equal(statuses, rejectsStatuses) {
				t.Errorf("%s: %s", file, text)
			}
		}
	}
}
