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
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// routes is an app with n routes.
func routes(n int) func(*Options) { return func(o *Options) { o.URL, o.Routes = "http://app/", n } }

// TestRejectsDefersWhatFailedBefore, but not where the message may have another path than the one that rejects.
func TestRejectsDefersWhatFailedBefore(t *testing.T) {
	t.Parallel()
	for n, want := range []int{1, 10} {
		subtest(t, fmt.Sprint(n, " routes"), routes(n), func(t *testing.T, c *Control) {
			c.refuse(rejectsThreshold, 404)
			time.Sleep(1001 * time.Millisecond)
			if tried := c.repeated(10, 2); tried != want {
				t.Errorf("%d messages that failed before are tried, want %d", tried, want)
			}
			c.answer(404, 2)
			wantOpen(t, c, n == 0, "after a failure")
		})
	}
}

func TestEachPathIsJudgedAlone(t *testing.T) {
	t.Parallel()
	bubbleWith(t, &app{}, routes(2), func(t *testing.T, c *Control) {
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
		wantLimit(t, c, 1, "one message on trial")
		c.on(2, 1, 200) // these end no trial of route 1
		c.on(0, 1, 500)
		wantLimit(t, c, 1, "an answer on another path ends no trial")
		c.on(1, 1, 404)
		wantOpen(t, c, false, "the trial failed")
		time.Sleep(2001 * time.Millisecond)
		c.on(1, 1, 204)
		time.Sleep(5 * rampStep)
		wantLimit(t, c, 10, "after a 204 on the path")
	})
}

func TestTwoPathsReject(t *testing.T) {
	t.Parallel()
	bubbleWith(t, &app{}, routes(2), func(t *testing.T, c *Control) {
		c.on(1, rejectsThreshold, 404)
		wantOpen(t, c, false, "one path rejects")
		c.on(2, rejectsThreshold, 401) // in flight
		time.Sleep(1001 * time.Millisecond)
		c.on(2, 1, 401)
		wantOpen(t, c, false, "the trial of the second path failed")
		time.Sleep(2001 * time.Millisecond)
		c.on(1, 1, 204)
		wantLimit(t, c, 1, "the second path is still on trial")
		c.on(1, rejectsThreshold, 404)
		wantOpen(t, c, true, "a path that accepted a message five minutes ago rejects all")
		c.on(2, 1, 204)
		time.Sleep(5 * rampStep)
		wantLimit(t, c, 10, "after each path took a message")
	})
}

// TestOtherPathsDoNotWaitForATrial: the last message of a path that rejects may be parked, and none may follow.
func TestOtherPathsDoNotWaitForATrial(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(c *Control){
		"after a pause":   func(c *Control) { time.Sleep(1001 * time.Millisecond) },
		"after a restart": func(c *Control) { time.Sleep(time.Minute); c.rejects.restart() },
	} {
		subtest(t, name, routes(1), func(t *testing.T, c *Control) {
			c.on(1, rejectsThreshold, 404)
			begin(c)
			time.Sleep(rejectsPauseMax - time.Millisecond)
			wantLimit(t, c, 1, "on trial")
			time.Sleep(2 * time.Millisecond)
			c.on(0, 1, 200)
			wantLimit(t, c, 10, "long after the last message of the path")
			c.on(1, 1, 404)
			wantOpen(t, c, false, "the path still rejects")
		})
	}
}

// TestRedirectsAreARefusal: an app may answer several of them, each with another Location.
func TestRedirectsAreARefusal(t *testing.T) {
	t.Parallel()
	var log apptest.Log
	change := func(o *Options) { o.URL, o.Logger = "http://app/events", slog.New(slog.NewTextHandler(&log, nil)) }
	bubbleWith(t, &app{}, change, func(t *testing.T, c *Control) {
		logged := func(line string) {
			t.Helper()
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("want one %q in\n%s", line, log.String())
			}
		}
		for i, status := range []int{301, 302, 303, 307, 308, 300, 304, 302, 301, 308} {
			wantOpen(t, c, true, "shut below the threshold")
			c.Report(&message.Message{}, &message.Outcome{Status: status, At: time.Now(), Location: fmt.Sprint("https://login.example/", i)})
		}
		if h := c.Holds(); len(h) != 1 || h[0].Detail != "http://app/events answers every message with status 308 and Location https://login.example/9" {
			t.Errorf("holds %v", h)
		}
		logged("msg=paused reason=app_rejects_all url=http://app/events status=308 location=https://login.example/9")
		time.Sleep(1001 * time.Millisecond)
		c.answer(302, 0)
		wantOpen(t, c, false, "the trial was redirected")
		time.Sleep(2001 * time.Millisecond)
		c.answer(204, 0)
		logged("msg=resumed reason=app_rejects_all url=http://app/events status=204")
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
