package test

import (
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestDLQRedriveAllEnds: an app that always fails gets each message once more, and each is parked again.
func TestDLQRedriveAllEnds(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			sc.app.otherwise(func(*delivery) answer { return status(500) })
			s := sc.run()
			sc.send("a", "b", "c")
			eventually(t, "three parked messages", func() bool { return sc.ready(sc.dlq()) == 3 })
			if r := sc.cli(0, "redrive"); !strings.Contains(r.stdout, "3 of 3 messages redriven\n") {
				t.Errorf("%s", r.all())
			}
			eventually(t, "nine receipts, and three parked again", func() bool { return sc.app.total() == 9 && sc.ready(sc.dlq()) == 3 })
			for _, id := range []string{"a", "b", "c"} {
				if seen := sc.app.seen(id); len(seen) != 3 || seen[2].number("Amqp-Retry-Count") != 1 {
					t.Errorf("%s: %d receipts, the last with retry count %d", id, len(seen), seen[len(seen)-1].number("Amqp-Retry-Count"))
				}
			}
			host, err := os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range sc.take(sc.dlq(), 3) {
				by, _ := d.Headers["x-redriven-by"].(string)
				if asInt(d.Headers["x-redriven-count"]) != 1 || d.Headers["x-redriven-from"] != sc.dlq() || !strings.HasSuffix(by, "@"+host) || d.Headers["x-redriven-at"] == nil {
					t.Errorf("%s: %v", d.MessageId, d.Headers)
				}
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQRedriveReset gives full fresh attempts, to the messages that are named and to no others.
func TestDLQRedriveReset(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1")
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	s := sc.run()
	sc.send("a", "b")
	eventually(t, "two parked messages", func() bool { return sc.ready(sc.dlq()) == 2 })
	if d := sc.acted("redrive", "a", "--reset"); d.Done != 1 || d.Matched != 1 || d.Action != "redrive" || d.Queue != sc.dlq() {
		t.Errorf("%+v", d)
	}
	eventually(t, "two more attempts at a, and parked again", func() bool { return len(sc.app.seen("a")) == 4 && sc.ready(sc.dlq()) == 2 })
	for i, want := range []int{0, 1, 0, 1} {
		if got := sc.app.seen("a")[i].number("Amqp-Retry-Count"); got != want {
			t.Errorf("attempt %d has retry count %d, want %d", i+1, got, want)
		}
	}
	if n := len(sc.app.seen("b")); n != 2 {
		t.Errorf("b came %d times", n)
	}
	if r := sc.cli(1, "redrive", "a", "gone"); !strings.Contains(r.stderr, `no parked message "gone"`) {
		t.Errorf("%q", r.stderr)
	}
	if r := sc.cli(1, "redrive", "gone"); !strings.Contains(r.stderr, `"gone"`) {
		t.Errorf("%q", r.stderr)
	}
	eventually(t, "a parked again", func() bool { return len(sc.app.seen("a")) == 5 && sc.ready(sc.dlq()) == 2 })
	sc.settledAll(s, 2)
}

// TestDLQCanary: the rest follows when what was sent ahead was taken, and stays when it failed again.
func TestDLQCanary(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0")
	healed := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer {
		select {
		case <-healed:
			return status(200)
		default:
			return status(500)
		}
	})
	s := sc.run()
	ids := numbered("m", 9)
	sc.send(ids...)
	eventually(t, "nine parked messages", func() bool { return sc.ready(sc.dlq()) == 9 })
	r := sc.cli(1, "redrive", "--canary", "1", "--json")
	d := documents[done](t, r)[0]
	if d.Canary.Sent != 1 || d.Canary.Bad != 1 || d.Done != 1 || !strings.Contains(d.Error, "canary failed") || !strings.Contains(r.stderr, "failed again") {
		t.Errorf("%+v\n%s", d, r.stderr)
	}
	eventually(t, "nine parked again", func() bool { return sc.ready(sc.dlq()) == 9 })
	if n := sc.app.total(); n != 10 {
		t.Errorf("%d receipts: more than the canary was sent", n)
	}
	close(healed)
	if r := sc.cli(0, "redrive", "--canary", "3"); !strings.Contains(r.stdout, "9 of 9 messages redriven; canary: 3 sent, 3 good, 0 bad") {
		t.Errorf("%s", r.all())
	}
	eventually(t, "all taken", func() bool { return sc.app.total() == 19 })
	sc.settledAll(s, 0)
	sc.parkIDs(503, "x")
	if r := sc.cli(1, "redrive", "--canary", "1", "--canary-timeout", "200ms"); !strings.Contains(r.stderr, "no verdict") {
		t.Errorf("nobody is there to take it: %s", r.all())
	}
}

// TestDLQDryRunAndLimit: a dry run counts and moves nothing, a limit bounds what is moved.
func TestDLQDryRunAndLimit(t *testing.T) {
	t.Parallel()
	sc := newScene(t).declared()
	sc.parkIDs(503, "a", "b", "c")
	sc.parkIDs(422, "d")
	for _, args := range [][]string{{"redrive", "--status", "503", "--dry-run"}, {"discard", "--status", "5xx", "--dry-run"}} {
		if d := sc.acted(args...); !d.DryRun || d.Matched != 3 || d.Done != 0 || d.Total != 4 {
			t.Errorf("%v: %+v", args, d)
		}
	}
	if d := sc.acted("purge", "--dry-run"); d.Matched != 4 || d.Done != 0 {
		t.Errorf("%+v", d)
	}
	if r := sc.cli(0, "redrive", "--dry-run"); !strings.Contains(r.stdout, "4 of 4 messages would be redriven; nothing was changed") {
		t.Errorf("%s", r.stdout)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Fatalf("%q", got)
	}
	if d := sc.acted("redrive", "--limit", "2", "--rate", "1000/s"); d.Done != 2 {
		t.Errorf("%+v", d)
	}
	if got := sc.listedIDs(); !slices.Equal(got, []string{"c", "d"}) || sc.ready(sc.queue()) != 2 {
		t.Errorf("%q, and %d in the service's queue", got, sc.ready(sc.queue()))
	}
	if d := sc.acted("redrive", "--status", "599"); d.Done != 0 || d.Matched != 0 || d.Total != 2 {
		t.Errorf("nothing matches: %+v", d)
	}
}

// TestDLQOneAtATime: while one command works on the queue another is refused. A signal ends the first at a safe point, and
// the same command again does the rest.
func TestDLQOneAtATime(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType)
			s := sc.run()
			ids := numbered("m", 20)
			sc.parkIDs(503, ids...)
			slow := launch(t, sc.env, "dlq", "redrive", "--rate", "30/m")
			eventually(t, "the first message", func() bool { return sc.app.total() > 0 })
			for _, args := range [][]string{{"redrive"}, {"list"}, {"purge", "--yes"}, {"export"}} {
				if r := sc.cli(1, args...); !strings.Contains(r.stderr, "in use") || !strings.Contains(r.stderr, sc.dlq()) || strings.Count(r.stderr, "\n") != 1 {
					t.Errorf("%v: %q", args, r.stderr)
				}
			}
			slow.signal(syscall.SIGTERM)
			if code := slow.exitCode(); code != 1 || !strings.Contains(slow.log.String(), "stopped by a signal") || !strings.Contains(slow.log.String(), "the rest is still in the queue") {
				t.Errorf("exit %d: %s", code, slow.log.String())
			}
			eventually(t, "every message in one place", func() bool { return sc.ready(sc.dlq())+sc.app.total() == len(ids) })
			left := sc.ready(sc.dlq())
			if left == 0 || left == len(ids) {
				t.Errorf("%d left", left)
			}
			if d := sc.acted("redrive"); d.Done != left {
				t.Errorf("%d left, %+v", left, d)
			}
			eventually(t, "all of them", func() bool { return sc.app.total() == len(ids) })
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQRedriveKilled: kill -9 of the command at any point loses nothing; the same command again does the rest.
func TestDLQRedriveKilled(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "50")
	s := sc.run()
	ids := numbered("m", 3000)
	list := make([]amqp.Publishing, len(ids))
	for i, id := range ids {
		list[i] = parked(id, 503)
	}
	sc.park(list...)
	for seen := range 3 {
		r := launch(t, sc.env, "dlq", "redrive", "--rate", "2000/s")
		eventually(t, "some more messages", func() bool { return sc.app.total() > 300*(seen+1) })
		r.kill()
		eventually(t, "what it held is back", func() bool { return sc.consumers(sc.dlq()) == 0 })
	}
	eventually(t, "the rest", func() bool { sc.cli(0, "redrive", "-q"); return sc.ready(sc.dlq()) == 0 })
	for _, id := range ids {
		eventually(t, id, func() bool { return len(sc.app.seen(id)) > 0 })
	}
	sc.settledAll(s, 0)
}
