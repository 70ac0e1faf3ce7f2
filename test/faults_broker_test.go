package test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestBrokerRestarts: the message in flight comes again, uncounted.
func TestBrokerRestarts(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t)
	sc := newScene(t).with("MAX_RETRIES", "0").seed()
	s := sc.run()
	brokertest.CtlLater(t, "start_app")
	for _, id := range numbered("m", 2) {
		gate := make(chan struct{})
		sc.app.on(id, answer{status: 200, gate: gate}, status(200))
		sc.send(id)
		sc.app.await(id, 1)
		brokertest.Ctl(t, "stop_app")
		eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
		close(gate)
		brokertest.Ctl(t, "start_app")
		s.awaitReady()
		s.awaitOutcome(id, "ack")
		if n := len(sc.app.seen(id)); n != 1 {
			t.Errorf("%s was POSTed %d times: the answer outlives the session", id, n)
		}
	}
	if n := s.metric("sidecar_amqp_reconnects_total", `cause="broker"`); n < 2 {
		t.Errorf("%v sessions closed by the broker in two restarts", n)
	}
	sc.settledAll(s, 0)
}

// TestBrokerSuspended: a broker that is frozen sends nothing; when it goes on it still has the sidecar's old consumer,
// for a moment beside the new one.
func TestBrokerSuspended(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := newScene(t).with("AMQP_HEARTBEAT", "1s", "MAX_RETRIES", "0", "CONCURRENCY", "4", "PREFETCH", "8").seed()
	s := sc.run()
	sc.warm(s, 4)
	before := sc.app.total()
	gate := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	ids := numbered("m", 40)
	sc.send(ids...)
	eventually(t, "four in flight", func() bool { return sc.app.total() == before+4 })
	node.Freeze()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	node.Thaw()
	s.awaitReady()
	close(gate)
	sc.app.awaitAll(ids...)
	s.awaitAcked(ids...)
	sc.settledAll(s, 0)
	if n := sc.app.total() - before; n > 44 {
		t.Errorf("%d receipts of 40 messages; only the four in flight may come twice", n)
	}
}

// TestAlarmWhileEverythingFails: more messages are to be parked than the window holds, and the broker takes none: no
// more are taken. Afterwards each is parked, and once: but for the publish by which the sidecar learned of the alarm,
// which may have run out of time with the copy already there.
func TestAlarmWhileEverythingFails(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	const prefetch = 8
	sc := newScene(t).with("MAX_RETRIES", "0", "CONCURRENCY", "4", "PREFETCH", fmt.Sprint(prefetch)).seed()
	sc.app.otherwise(func(*delivery) answer { return status(409) }) // a 500 would let the breaker pause before
	s := sc.run()
	ids := numbered("m", 40)
	sc.app.down()
	sc.send(ids...)
	calm := node.Alarm()
	sc.app.up()
	eventually(t, "the alarm in the metrics", func() bool { return s.metric("sidecar_amqp_blocked") == 1 })
	stays(t, time.Second, "up, and no more in flight than the window holds", func() bool {
		return !s.ended() && sc.ready(sc.queue()) >= len(ids)-prefetch
	})
	calm()
	parked := map[string]int{}
	eventually(t, "every message parked", func() bool {
		for _, d := range sc.take(sc.dlq(), max(sc.ready(sc.dlq()), 0)) {
			parked[d.MessageId]++
		}
		return len(parked) == len(ids)
	})
	s.stop()
	copies := max(sc.ready(sc.dlq()), 0) - len(ids)
	for _, n := range parked {
		copies += n
	}
	if copies > 1 || sc.ready(sc.queue()) != 0 {
		t.Errorf("%d copies too many, %d messages left in the queue", copies, sc.ready(sc.queue()))
	}
}

// TestUserLosesAccess: the password changes under a running sidecar, then the user is gone. It never ends for it, it
// says why, and it needs no restart once an operator has repaired it.
func TestUserLosesAccess(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	user := newAccount(t)
	user.may(".*", ".*", ".*")
	file := filepath.Join(t.TempDir(), "password")
	put := func(s string) {
		if err := os.WriteFile(file, []byte(s), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("canary-password")
	s := sc.with("AMQP_USERNAME", user.name, "AMQP_PASSWORD_FILE", file).run()
	refusals := func() float64 { return s.metric("sidecar_amqp_reconnects_total", `cause="auth"`) }
	lines := func() int { return len(s.log.find(func(e entry) bool { return e.text("cause") == "auth" })) }
	for what, damage := range map[string]func(){
		"another password": func() { brokertest.Ctl(t, "change_password", user.name, "canary-second") },
		"no such user":     func() { brokertest.Ctl(t, "delete_user", user.name) },
	} {
		before, said := refusals(), lines()
		damage()
		if what == "another password" {
			brokertest.Ctl(t, "close_all_user_connections", user.name, "rotation")
		}
		eventually(t, what+": a refused login", func() bool { return refusals() > before })
		if s.ready() || s.ended() || lines() <= said {
			t.Errorf("%s: ready %v, ended %v, %d lines that say why", what, s.ready(), s.ended(), lines()-said)
		}
		if what == "another password" {
			put("canary-second")
		} else {
			put("canary-third")
			brokertest.Ctl(t, "add_user", user.name, "canary-third")
			user.may(".*", ".*", ".*")
		}
		s.awaitReady()
	}
	sc.send("m")
	sc.app.await("m", 1)
	if s.log.mentions("canary") {
		t.Error("the log holds a password")
	}
	sc.settledAll(s, 0)
}

// TestVhostDeleted and made again, empty: the sidecar is back with its queues declared.
func TestVhostDeleted(t *testing.T) {
	t.Parallel()
	sc := newScene(t)
	s := sc.run()
	name := brokertest.VhostName(t)
	brokertest.Ctl(t, "delete_vhost", name)
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	eventually(t, "a refusal counted", func() bool { return s.metric("sidecar_amqp_reconnects_total", `cause="auth"`) > 0 })
	if s.ended() {
		t.Fatal("the sidecar ended")
	}
	// RabbitMQ itself looks four times a second for virtual hosts that are gone and deletes them once more, later ones of
	// the name, too.
	brokertest.Eval(t, `Deletes = fun(P) -> case process_info(P, current_stacktrace) of
			{_, Calls} -> [] =/= [M || {M, _, _, _} <- Calls, M =:= rabbit_vhost_sup_sup orelse M =:= rabbit_vhost_process];
			undefined -> false
		end end,
		Wait = fun Wait([]) -> ok; Wait(Some) -> timer:sleep(10), Wait(lists:filter(Deletes, Some)) end,
		Wait(lists:filter(Deletes, processes()))`)
	brokertest.Ctl(t, "add_vhost", name)
	brokertest.Ctl(t, "set_permissions", brokerUser(t), ".*", ".*", ".*")
	s.awaitReady()
	sc.send("m")
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}

// TestQueueInExclusiveUse: another process consumes alone. The sidecar waits, not ready, and takes over when it may.
func TestQueueInExclusiveUse(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	ch := sc.channel()
	if _, err := ch.Consume(sc.queue(), "alone", false, true, false, false, nil); err != nil {
		t.Fatal(err)
	}
	s := start(t, sc.env)
	eventually(t, "a log line about the refusal", func() bool { return s.log.mentions("access_refused", sc.queue()) })
	stays(t, time.Second, "up and not ready", func() bool { return !s.ended() && !s.ready() })
	_ = ch.Close()
	s.awaitReady()
	sc.send("m")
	sc.app.await("m", 1)
	sc.settledAll(s, 0)
}

// TestSingleActiveConsumer: the replica that gets nothing is as healthy as the one that gets all.
func TestSingleActiveConsumer(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.deleteQueue(sc.queue())
	args := serviceArgs(sc)
	args["x-single-active-consumer"] = true
	if err := sc.declare(sc.queue(), args); err != nil {
		t.Fatal(err)
	}
	sc.bind(sc.queue(), "", sc.exchange())
	first := sc.run()
	second := sc.run()
	sc.send(numbered("a", 20)...)
	first.awaitAcked(numbered("a", 20)...)
	if !second.ready() || second.metric("sidecar_consumer_active") != 1 {
		t.Error("the waiting replica is not ready")
	}
	first.kill()
	sc.send(numbered("b", 20)...)
	second.awaitAcked(numbered("b", 20)...)
	sc.settledAll(second, 0)
}

// TestParkWhoseConfirmIsLost: the copy is in the DLQ and the sidecar was not notified. It cannot know, so the original stays
// and is parked again: twice, never not at all.
func TestParkWhoseConfirmIsLost(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault    func(sc *scene, s *sidecar, p *proxy) *sidecar
		attempts int
	}{
		"cut":    {func(_ *scene, s *sidecar, p *proxy) *sidecar { p.cut(); return s }, 1},
		"killed": {func(sc *scene, s *sidecar, _ *proxy) *sidecar { s.kill(); return start(sc.t, sc.env) }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0").seed()
			p := linked(t, sc)
			gate := make(chan struct{})
			sc.app.on("m", answer{status: 500, gate: gate}, status(500))
			sc.app.on("first", status(500))
			s := sc.run()
			sc.send("first")
			sc.take(sc.dlq(), 1) // now there is a channel to publish on: opening one would wait for an answer
			s.awaitOutcome("first", "park")
			sc.send("m")
			sc.app.await("m", 1)
			thaw := p.mute()
			t.Cleanup(thaw)
			close(gate)
			eventually(t, "the copy in the DLQ", func() bool { return sc.ready(sc.dlq()) == 1 })
			s = c.fault(sc, s, p)
			thaw()
			list := sc.take(sc.dlq(), 2)
			for _, d := range list {
				if d.MessageId != "m" || string(d.Body) != string(list[0].Body) || d.Headers["x-final-reason"] != "max_retries" || asInt(d.Headers["x-final-status-code"]) != 500 {
					t.Errorf("parked %q: %v", d.MessageId, d.Headers)
				}
			}
			sc.settledAll(s.awaitReady(), 0)
			if n := len(sc.app.seen("m")); n != c.attempts {
				t.Errorf("%d receipts, want %d", n, c.attempts)
			}
		})
	}
}
