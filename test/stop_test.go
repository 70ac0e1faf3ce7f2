package test

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

func TestStopWhenIdle(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	sc.run().stop()
}

func TestStopWithoutABroker(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	p := linked(t, sc)
	p.down()
	start(t, sc.env).stop()
}

// TestSIGHUPIsIgnored: it neither ends nor drains the sidecar.
func TestSIGHUPIsIgnored(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	s := sc.run()
	s.signal(syscall.SIGHUP)
	sc.send("m")
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}

// TestStopWaitsForWhatIsInFlight: one receipt, acked, exit 0.
func TestStopWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).seed()
			gate := make(chan struct{})
			sc.app.on("m", answer{status: 200, gate: gate})
			sc.send("m")
			s := sc.run()
			sc.app.await("m", 1)
			s.signal(sig)
			eventually(t, "no longer ready", func() bool { return !s.ready() })
			stays(t, 500*time.Millisecond, "still there for the app's answer", func() bool { return !s.ended() })
			sc.send("next")
			close(gate)
			if code := s.exitCode(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if n := sc.ready(sc.queue()); n != 1 {
				t.Errorf("%d messages in the queue, want only the one that came after the signal", n)
			}
			if n := len(sc.app.seen("m")); n != 1 || len(sc.app.seen("next")) != 0 {
				t.Errorf("%d receipts of the message in flight, %d of the next one", n, len(sc.app.seen("next")))
			}
			if !s.log.mentions("drained") {
				t.Error("the log does not say drained")
			}
		})
	}
}

// TestStopWithABacklog: the prefetched messages go back, uncounted, unparked, in order to be received once.
func TestStopWithABacklog(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("CONCURRENCY", "2", "PREFETCH", "50", "QUEUE_TYPE", queueType, "MAX_RETRIES", "0")
			gate := make(chan struct{})
			sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
			s := sc.run()
			sc.warm(s, 2)
			before := sc.app.total()
			ids := numbered("m", 120)
			sc.send(ids...)
			eventually(t, "two messages in flight and a full window", func() bool { return sc.app.total() == before+2 && sc.ready(sc.queue()) == 70 })
			s.signal(syscall.SIGTERM)
			eventually(t, "no longer ready", func() bool { return !s.ready() })
			close(gate)
			if code := s.exitCode(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
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

// TestStopEndsDelays: a delayed 425 is given back at once, uncounted. Nothing but the signal can end its delay
// within the patience of the test: the grace, at whose end it is given back in any case, is longer, too.
func TestStopEndsDelays(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("REQUEUE_DELAY_MIN", "9m", "REQUEUE_DELAY_MAX", "10m", "SHUTDOWN_GRACE", "1h").seed()
	ids := numbered("m", 3)
	for _, id := range ids {
		sc.app.on(id, status(425), status(200))
	}
	sc.send(ids...)
	s := sc.run()
	sc.app.awaitAll(ids...)
	eventually(t, "three delayed messages in the metrics", func() bool { return s.metric("sidecar_delayed_messages") == 3 })
	s.stop()
	eventually(t, "the delayed messages back in the queue", func() bool { return sc.ready(sc.queue()) == 3 })
	s = sc.run()
	for _, id := range ids {
		if d := sc.app.await(id, 2)[1]; d.number("Amqp-Retry-Count") != 0 {
			t.Errorf("%s was counted: Amqp-Retry-Count %s", id, d.header.Get("Amqp-Retry-Count"))
		}
	}
	sc.settledAll(s, 0)
}

// TestGraceExpires: what did not finish is released, not counted, and the exit is still clean.
func TestGraceExpires(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("SHUTDOWN_GRACE", "1s", "QUEUE_TYPE", queueType, "MAX_RETRIES", "0")
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			sc.app.on("stuck", answer{gate: never}, status(200))
			s := sc.run()
			sc.send("stuck")
			sc.app.await("stuck", 1)
			begun := time.Now()
			s.stop()
			if took := time.Since(begun); took < time.Second {
				t.Errorf("ended after %v, before the grace of 1s", took)
			}
			if !s.log.mentions("grace expired") || !s.log.mentions("released") {
				t.Errorf("the log does not say that the grace expired and what was released:\n%s", s.log.tail(10))
			}
			eventually(t, "the message back in the queue", func() bool { return sc.ready(sc.queue()) == 1 })
			s = sc.run()
			if d := sc.app.await("stuck", 2)[1]; d.number("Amqp-Retry-Count") != 0 {
				t.Errorf("the release was counted: Amqp-Retry-Count %s", d.header.Get("Amqp-Retry-Count"))
			}
			sc.settledAll(s, 0)
		})
	}
}

// TestTwoSignals: impatience may shorten the stop, it must not lose or charge anything.
func TestTwoSignals(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	gate := make(chan struct{})
	sc.app.on("m", answer{status: 200, gate: gate}, status(200))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	s.signal(syscall.SIGTERM)
	time.Sleep(200 * time.Millisecond)
	s.signal(syscall.SIGTERM)
	time.Sleep(500 * time.Millisecond)
	close(gate)
	s.exitCode()
	left := 0
	eventually(t, "the message acked or back", func() bool {
		left = sc.ready(sc.queue())
		return left == 1 || len(s.log.outcomes("m")) > 0
	})
	s = sc.run()
	if left == 1 {
		if d := sc.app.await("m", 2)[1]; d.number("Amqp-Retry-Count") != 0 {
			t.Errorf("Amqp-Retry-Count %s after an impatient stop", d.header.Get("Amqp-Retry-Count"))
		}
	}
	sc.settledAll(s, 0)
}

// TestStopWhileHeld: for whatever reason nothing is taken, SIGTERM still ends it.
func TestStopWhileHeld(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(sc *scene) *sidecar{
		"app down": func(sc *scene) *sidecar { sc.app.down(); return start(sc.t, sc.env) },
		"paused":   func(sc *scene) *sidecar { s := sc.run(); s.post(s.control, "/pause"); return s },
		"drift": func(sc *scene) *sidecar {
			sc.deleteQueue(sc.dlq())
			return start(sc.t, sc.with("TOPOLOGY_MODE", "verify").env)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).seed()
			sc.send("m")
			s := hold(sc)
			time.Sleep(time.Second) // held, with a message waiting
			s.stop()
			if name != "paused" && sc.ready(sc.queue()) != 1 {
				t.Errorf("%d messages in the queue, want 1", sc.ready(sc.queue()))
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
	stays(t, time.Second, "nothing more is taken", func() bool { return len(sc.app.seen("next")) == 0 })
	s.stop()
	if n := sc.ready(sc.queue()); n != 1 || len(sc.app.seen("m")) != 1 {
		t.Errorf("%d messages in the queue, want the one that came later; %d receipts of the first", n, len(sc.app.seen("m")))
	}
}

// TestDrainCommandOutlastsTheGrace: what the grace cuts short has to be given back before the hook may end.
func TestDrainCommandOutlastsTheGrace(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("SHUTDOWN_GRACE", "1s").seed()
	sc.app.on("m", answer{status: 200, gate: make(chan struct{})})
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	if r := command(t, sc.running(s), "drain"); r.code != 0 || sc.ready(sc.queue()) != 1 {
		t.Errorf("exit %d, %d messages in the queue:\n%s", r.code, sc.ready(sc.queue()), r.all())
	}
	s.stop()
}

// TestDrainedWithoutADrain answers by itself after a short wait: a preStop hook also runs when there is no drain.
func TestDrainedWithoutADrain(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	if status, body := s.get(s.admin, "/drained"); status != 200 {
		t.Errorf("GET /drained: %d %s", status, body)
	}
	s.awaitReady()
}

// TestKillLosesNothing: kill -9 in the middle of everything, twenty times. What comes twice was in the window at a
// kill.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	const kills, prefetch = 20, 10
	sc := newScene(t).with("MAX_RETRIES", "3", "CONCURRENCY", "5", "PREFETCH", fmt.Sprint(prefetch)).seed()
	ids, bad := numbered("m", 600), numbered("bad", 20)
	sc.app.otherwise(func(d *delivery) answer {
		time.Sleep(5 * time.Millisecond)
		if d.id[0] == 'b' {
			return status(500)
		}
		return status(200)
	})
	sc.send(ids[:300]...)
	sc.send(bad...)
	sc.send(ids[300:]...)
	binary := shipped(t)
	for range kills {
		s := launchBinary(t, binary, sc.env).listening().awaitReady()
		before := sc.app.total()
		eventually(t, "some progress", func() bool { return sc.app.total() > before+10 || sc.ready(sc.queue()) == 0 })
		s.kill()
	}
	s := sc.run()
	sc.app.awaitAll(ids...)
	parked := map[string]bool{}
	eventually(t, "all bad messages parked", func() bool {
		if sc.ready(sc.dlq()) > 0 {
			for _, d := range sc.take(sc.dlq(), sc.ready(sc.dlq())) {
				parked[d.MessageId] = true
			}
		}
		return len(parked) == len(bad)
	})
	eventually(t, "empty queues", func() bool { return sc.ready(sc.queue()) == 0 && sc.ready(sc.retryQueue()) == 0 })
	for id := range parked {
		if id[0] != 'b' {
			t.Errorf("%s is good and was parked", id)
		}
	}
	twice := -len(ids)
	for _, id := range ids {
		twice += len(sc.app.seen(id))
	}
	if t.Logf("%d receipts too many in %d kills", twice, kills); twice > kills*prefetch {
		t.Errorf("%d receipts too many, want at most %d for each of %d kills", twice, prefetch, kills)
	}
	s.stop()
}
