package test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// failedAgain is the error about whichever of three messages was reported first: they are reported side by side.
var failedAgain = regexp.MustCompile(`"m-[012]" failed again: park \(max_retries, status 409\); the rest stays parked`)

// canary runs `dlq redrive --canary 3` with more arguments and wants that exit code and those counts.
func (sc *scene) canary(code int, want done, args ...string) result {
	sc.t.Helper()
	r := sc.cli(code, append([]string{"redrive", "--all", "--canary", "3", "--json"}, args...)...)
	d := documents[done](sc.t, r)[0]
	if d.Done != want.Done || d.Matched != want.Matched || d.Canary != want.Canary {
		sc.t.Errorf("%v: %+v", args, d)
	}
	return r
}

// TestDLQCanaryWhileTheAppFails: three go ahead and fail again, the rest is not touched, also not its order; once the
// app has been repaired all of it goes.
func TestDLQCanaryWhileTheAppFails(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType, "MAX_RETRIES", "1", "CONCURRENCY", "1")
			sc.app.otherwise(func(*delivery) answer { return status(409) })
			s := sc.run()
			ids := numbered("m", 40)
			sc.parkIDs(503, ids...)
			want := done{Done: 3, Matched: 3}
			want.Canary.Sent, want.Canary.Bad = 3, 1
			if r := sc.canary(1, want); !failedAgain.MatchString(r.stderr) || !strings.Contains(r.stdout, "canary failed") {
				t.Errorf("%q", r.stderr)
			}
			eventually(t, "the three parked again", func() bool { return sc.ready(sc.dlq()) == len(ids) })
			got := sc.listedIDs()
			slices.Sort(got[len(got)-3:]) // they were parked beside each other
			if !slices.Equal(got, append(slices.Clone(ids[3:]), ids[:3]...)) {
				t.Errorf("%q", got)
			}
			if n := sc.app.total(); n != 3 {
				t.Errorf("%d were tried", n)
			}

			sc.app.otherwise(func(*delivery) answer { return status(200) })
			want = done{Done: len(ids), Matched: len(ids)}
			want.Canary.Sent, want.Canary.Good = 3, 3
			sc.canary(0, want)
			for _, id := range ids {
				sc.app.await(id, 1)
			}
			eventually(t, "all tried", func() bool { return sc.app.total() == len(ids)+3 })
			sc.settledAll(s, 0)
		})
	}
}

// TestDLQCanaryWithoutConsumer: no sidecar runs, so there are no verdicts. The other messages stay parked, in their order; the
// canaries wait in the queue for a sidecar.
func TestDLQCanaryWithoutConsumer(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("QUEUE_TYPE", queueType).declared()
			ids := numbered("m", 40)
			sc.parkIDs(503, ids...)
			want := done{Done: 3, Matched: 3}
			want.Canary.Sent = 3
			r := sc.canary(1, want, "--canary-timeout", "500ms")
			if !strings.Contains(r.stderr, "3 of 3 messages have no verdict after 500ms; is a sidecar of this service running, and not paused?") {
				t.Errorf("%q", r.stderr)
			}
			if got := sc.listedIDs(); !slices.Equal(got, ids[3:]) {
				t.Errorf("%q", got)
			}
			s := sc.run() // no redrive receives its verdicts
			sc.app.awaitAll(ids[:3]...)
			sc.settledAll(s, len(ids)-3)
		})
	}
}

// TestDLQCanaryTooEarly: "too early" is no verdict while the message may come again. At its limit it is parked for it,
// as every message is, and then the canary has failed.
func TestDLQCanaryTooEarly(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "2", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms")
	early := func(d *delivery) answer {
		if d.nth == 1 {
			return status(425)
		}
		return status(200)
	}
	sc.app.otherwise(early)
	s := sc.run()
	ids := numbered("m", 8)
	sc.parkIDs(503, ids...)
	want := done{Done: 8, Matched: 8}
	want.Canary.Sent, want.Canary.Good = 3, 3
	sc.canary(0, want, "--reset")
	for _, id := range ids {
		sc.app.await(id, 2)
	}
	eventually(t, "all taken", func() bool { return sc.ready(sc.queue()) == 0 })
	sc.parkIDs(503, numbered("last", 8)...)
	if r := sc.cli(1, "redrive", "--all", "--canary", "3"); !strings.Contains(r.stderr, "failed again: park (max_retries, status 425)") {
		t.Errorf("%s", r.all())
	}
	eventually(t, "all parked", func() bool { return sc.ready(sc.dlq()) == 8 })
	sc.settledAll(s, 8)
}

// TestDLQCanaryThroughTheRetryQueue: in the preset per-queue the way back leads through the queue where retries wait,
// and the canary waits for longer than that.
func TestDLQCanaryThroughTheRetryQueue(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t)
			p := presets(sc.prefix)[3]
			sc.with("TOPOLOGY", p.name, "QUEUE_TYPE", queueType, "MAX_RETRIES", "1").with(p.env...)
			sc.app.otherwise(func(d *delivery) answer {
				if strings.HasPrefix(d.id, "bad") {
					return status(409)
				}
				return status(200)
			})
			s := sc.run()
			for _, id := range numbered("m", 10) {
				sc.publish("", p.dlq, parked(id, 503))
			}
			want := done{Done: 10, Matched: 10}
			want.Canary.Sent, want.Canary.Good = 3, 3
			sc.canary(0, want)
			sc.app.awaitAll(numbered("m", 10)...)
			sc.publish("", p.dlq, parked("bad", 503), parked("m-10", 503))
			if r := sc.cli(1, "redrive", "--all", "--canary", "1"); !strings.Contains(r.stderr, `"bad" failed again: park`) {
				t.Errorf("%s", r.all())
			}
			eventually(t, "parked again", func() bool { return sc.ready(p.dlq) == 2 })
			if got := sc.listedIDs(); !slices.Equal(got, []string{"m-10", "bad"}) {
				t.Errorf("%q", got)
			}
			s.stop()
		})
	}
}

// TestDLQCanaryOfMany: as many verdicts come as messages are sent ahead, also when the service takes them all at once.
func TestDLQCanaryOfMany(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "100")
	s := sc.run()
	sc.warm(s, 50)
	ids := numbered("m", 600)
	sc.parkIDs(503, ids...)
	if r := sc.cli(0, "redrive", "--all", "--canary", "500", "--canary-timeout", "30s"); !strings.Contains(r.stdout, "600 of 600 messages redriven; canary: 500 sent, 500 good, 0 bad") {
		t.Errorf("%s", r.all())
	}
	sc.app.awaitAll(ids...)
	sc.settledAll(s, 0)
}
