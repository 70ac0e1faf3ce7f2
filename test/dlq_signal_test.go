package test

import (
	"encoding/json"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestDLQRedriveEnded: the first SIGINT or SIGTERM ends a redrive at a safe point, whenever it comes. The command
// says how far it has come, and that is exactly what has been moved.
func TestDLQRedriveEnded(t *testing.T) {
	t.Parallel()
	for queueType, sig := range map[string]syscall.Signal{"classic": syscall.SIGINT, "quorum": syscall.SIGTERM} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 400)
			sc.parkIDs(503, ids...)
			moved := 0
			stopped := func(when func(), args ...string) {
				t.Helper()
				r := launch(t, sc.env, append([]string{"dlq", "redrive", "--all", "--json"}, args...)...)
				when()
				r.signal(sig)
				code := r.exitCode()
				text := r.log.String()
				var d done
				for line := range strings.Lines(text) {
					if strings.HasPrefix(line, "{") {
						if err := json.Unmarshal([]byte(line), &d); err != nil {
							t.Errorf("%q: %v", line, err)
						}
					}
				}
				if code != 1 || !strings.Contains(text, "stopped by a signal") || !strings.Contains(text, "the rest is still in the queue") || d.Failed != 0 || !strings.Contains(d.Error, "stopped by a signal") {
					t.Errorf("exit %d: %s", code, text)
				}
				moved += d.Done
				if n := sc.ready(sc.queue()); n != moved {
					t.Errorf("%d messages moved, said to be: %d", n, moved)
				}
				if got := sc.listedIDs(); !slices.Equal(got, ids[moved:]) {
					t.Errorf("%d moved, parked still: %q", moved, got)
				}
			}
			for range 3 {
				stopped(func() {
					least := moved + 20
					eventually(t, "some more messages", func() bool { return sc.ready(sc.queue()) >= least })
				}, "--rate", "50/s")
			}
			stopped(func() {
				eventually(t, "the first message", func() bool { return sc.ready(sc.queue()) > moved })
				for _, args := range [][]string{{"redrive", "--all"}, {"list"}, {"discard", "--all", "--yes"}, {"export"}} { // one at a time
					if r := sc.cli(1, args...); !r.refused() || !strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
						t.Errorf("%v: %q", args, r.stderr)
					}
				}
			}, "--rate", "1/m")
			stopped(func() {
				eventually(t, "the canary", func() bool { return sc.ready(sc.queue()) >= moved+3 })
			}, "--canary", "3")
			if d := sc.acted("redrive", "--all"); d.Done != len(ids)-moved {
				t.Errorf("%d moved, then %+v", moved, d)
			}
		})
	}
}

// TestDLQRedriveEndedAtAnyTime: also while it connects, locks, or has just begun. Every message is in one place.
func TestDLQRedriveEndedAtAnyTime(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 500)
			sc.parkIDs(503, ids...)
			for i := range 10 {
				r := launch(t, sc.env, "dlq", "redrive", "--all", "--rate", "200/s")
				time.Sleep(time.Duration(15*i) * time.Millisecond)
				r.signal(syscall.SIGTERM)
				r.exitCode() // as it began: killed by the signal before it listened to it, or 1
				eventually(t, "nothing is held", func() bool { return sc.consumers(sc.dlq()) == 0 })
				moved, left := sc.ready(sc.queue()), sc.ready(sc.dlq())
				if moved+left != len(ids) {
					t.Errorf("%d moved, %d left, of %d", moved, left, len(ids))
				}
			}
			var moved []string
			for _, d := range sc.take(sc.queue(), sc.ready(sc.queue())) {
				moved = append(moved, d.MessageId)
			}
			if !slices.Equal(moved, ids[:len(moved)]) {
				t.Errorf("moved: %q", moved)
			}
			if got := sc.listedIDs(); !slices.Equal(got, ids[len(moved):]) {
				t.Errorf("%d moved, parked still: %q", len(moved), got)
			}
		})
	}
}
