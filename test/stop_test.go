package test

import (
	"syscall"
	"testing"
	"time"
)

// TestStopWaitsForWhatIsInFlight: what is in flight is answered and acked, what was prefetched goes back uncounted, and
// the exit is clean. SIGHUP neither ends nor drains the sidecar.
func TestStopWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("CONCURRENCY", "2", "PREFETCH", "50", "MAX_RETRIES", "0")
			gate := make(chan struct{})
			sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
			s := sc.run()
			s.signal(syscall.SIGHUP)
			sc.warm(s, 2)
			before := sc.app.total()
			ids := numbered("m", 120)
			sc.send(ids...)
			eventually(t, "two messages in flight and a full window", func() bool { return sc.app.total() == before+2 && sc.ready(sc.queue()) == 70 })
			s.signal(sig)
			eventually(t, "no longer ready", func() bool { return !s.ready() })
			stays(t, 300*time.Millisecond, "still there for the app's answer", func() bool { return !s.ended() })
			close(gate)
			if code := s.exitCode(); code != 0 || !s.log.mentions("drained") {
				t.Errorf("exit code %d, want 0, and a line that says drained", code)
			}
			sent := sc.app.total() - before
			eventually(t, "what was not sent is back", func() bool { return sc.ready(sc.queue()) == 120-sent })
			s = sc.run()
			sc.app.awaitAll(ids...)
			s.awaitAcked(ids[sent:]...)
			sc.settledAll(s, 0)
			checkUncounted(t, sc, ids)
		})
	}
}

// TestGraceExpires, or a second signal ends it: what did not finish is released, not counted, and the exit is still clean.
// The command that drains, the preStop hook, ends after what the grace cuts short has been given back.
func TestGraceExpires(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		grace   string
		signals int
		line    string
	}{"signal": {"1s", 1, "grace expired"}, "second signal": {"1h", 2, "stopped at once"}, "command": {"1s", 0, "grace expired"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("SHUTDOWN_GRACE", c.grace, "MAX_RETRIES", "0").seed()
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			sc.app.on("stuck", answer{gate: never}, status(200))
			s := sc.run()
			sc.send("stuck")
			sc.app.await("stuck", 1)
			begun := time.Now()
			for range c.signals {
				s.signal(syscall.SIGTERM)
				eventually(t, "no longer ready", func() bool { return !s.ready() })
			}
			if c.signals == 0 {
				if r := command(t, sc.running(s), "drain"); r.code != 0 || sc.ready(sc.queue()) != 1 {
					t.Errorf("exit %d, %d messages in the queue:\n%s", r.code, sc.ready(sc.queue()), r.all())
				}
				s.signal(syscall.SIGTERM)
			}
			if code := s.exitCode(); code != 0 || c.grace == "1s" && time.Since(begun) < time.Second {
				t.Errorf("exit code %d after %v", code, time.Since(begun))
			}
			if !s.log.mentions(c.line, `"released":1`) {
				t.Errorf("the log does not say why and what was released:\n%s", s.log.tail(10))
			}
			eventually(t, "the message back in the queue", func() bool { return sc.ready(sc.queue()) == 1 })
			s = sc.run()
			if d := sc.app.await("stuck", 2)[1]; d.Number("Amqp-Retry-Count") != 0 {
				t.Errorf("the release was counted: Amqp-Retry-Count %s", d.Header.Get("Amqp-Retry-Count"))
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestStopWhileHeld: for whatever reason nothing is taken, SIGTERM still ends it, and a message that waits stays.
func TestStopWhileHeld(t *testing.T) {
	t.Parallel()
	for reason, hold := range map[string]func(sc *scene) *sidecar{
		"app_down": func(sc *scene) *sidecar { sc.app.Shut(); return start(sc.t, sc.env) },
		"operator": func(sc *scene) *sidecar {
			s := sc.run()
			s.post(s.control, "/pause")
			eventually(sc.t, "no consumer", func() bool { return sc.consumers(sc.queue()) == 0 })
			return s
		},
		"topology": func(sc *scene) *sidecar {
			sc.deleteQueue(sc.dlq())
			return start(sc.t, sc.with("TOPOLOGY_MODE", "verify").env)
		},
		"": func(sc *scene) *sidecar { linked(sc.t, sc).Refuse(); return start(sc.t, sc.env) },
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).seed()
			s := hold(sc)
			sc.send("m")
			if reason != "" {
				eventually(t, "a pause", func() bool { return s.metric("sidecar_paused", `reason="`+reason+`"`) == 1 })
			}
			s.stop()
			if n := sc.ready(sc.queue()); n != 1 {
				t.Errorf("%d messages in the queue, want 1", n)
			}
		})
	}
}

// TestDrainCommand is the preStop hook: it returns when nothing is in flight, and nothing more is taken.
func TestDrainCommand(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	gate := make(chan struct{})
	sc.app.on("m", answer{status: 200, gate: gate})
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	drain := launch(t, sc.running(s), "drain")
	eventually(t, "no longer ready", func() bool { return !s.ready() })
	drained := make(chan int, 1)
	go func() { status, _ := s.get(s.admin, "/drained"); drained <- status }()
	stays(t, time.Second, "drain and /drained wait for the app", func() bool { return !drain.ended() && len(drained) == 0 })
	sc.send("next")
	close(gate)
	if code := drain.exitCode(); code != 0 {
		t.Errorf("sidecar drain ended with %d:\n%s", code, drain.log.tail(10))
	}
	select {
	case status := <-drained:
		if status != 200 && !s.ended() {
			t.Errorf("GET /drained: %d", status)
		}
	case <-time.After(patience):
		t.Error("GET /drained did not answer")
	}
	stays(t, time.Second, "nothing more is taken", func() bool { return len(sc.app.Seen("next")) == 0 })
	s.stop()
	if n := sc.ready(sc.queue()); n != 1 || len(sc.app.Seen("m")) != 1 {
		t.Errorf("%d messages in the queue, want the one that came later; %d receipts of the first", n, len(sc.app.Seen("m")))
	}
}
