package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// TestParkWhoseConfirmIsLost: the copy is in the DLQ, and the sidecar is killed before it is notified. The original stays and
// is parked again: twice, never not at all.
func TestParkWhoseConfirmIsLost(t *testing.T) {
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
	thaw := p.Freeze(brokertest.Down) // what the sidecar sends still arrives
	t.Cleanup(thaw)
	close(gate)
	eventually(t, "the copy in the DLQ", func() bool { return sc.ready(sc.dlq()) == 1 })
	s.kill()
	s = start(t, sc.env)
	thaw()
	list := sc.take(sc.dlq(), 2)
	for _, d := range list {
		if d.MessageId != "m" || string(d.Body) != string(list[0].Body) || d.Headers["x-final-reason"] != "max_retries" || asInt(d.Headers["x-final-status-code"]) != 500 {
			t.Errorf("parked %q: %v", d.MessageId, d.Headers)
		}
	}
	sc.settledAll(s.awaitReady(), 0)
	if n := len(sc.app.Seen("m")); n != 2 {
		t.Errorf("%d receipts, want 2", n)
	}
}

// quorumOnDisk makes the node write the directory of its quorum queues now. RabbitMQ 3.10 does so up to three seconds
// late, and a queue of a node that is killed earlier is empty and without a leader afterwards, regardless of which
// connection declared it.
func quorumOnDisk(t testing.TB) {
	t.Helper()
	brokertest.Eval(t, "[ok = dets:sync(T) || T <- dets:all()]")
}

// TestBrokerFaults: one sidecar and one node, which is restarted, frozen and killed.
func TestBrokerFaults(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	node.Heartbeat(1)
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "CONCURRENCY", "4", "PREFETCH", "8", "RETRY_DELAY", "1s")
	s := sc.run()
	quorumOnDisk(t)
	sc.warm(s, 4)
	sc.brokerRestarts(s)
	sc.brokerIsFrozen(s, node)
	sc.brokerIsKilled(s, node)
	sc.settledAll(s, 0)
}

// brokerRestarts: the answer to the message in flight outlives the session.
func (sc *scene) brokerRestarts(s *sidecar) {
	t := sc.t
	t.Helper()
	brokertest.CtlLater(t, "start_app")
	gate := make(chan struct{})
	sc.app.on("restart", answer{status: 200, gate: gate})
	sc.send("restart")
	sc.app.await("restart", 1)
	brokertest.Ctl(t, "stop_app")
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	close(gate)
	brokertest.Ctl(t, "start_app")
	s.awaitReady()
	s.awaitOutcome("restart", "ack")
	if n := len(sc.app.Seen("restart")); n != 1 {
		t.Errorf("the message in flight was POSTed %d times", n)
	}
	if n := s.metric("sidecar_amqp_reconnects_total", `cause="broker"`); n < 1 {
		t.Errorf("%v sessions closed by the broker", n)
	}
}

// brokerIsFrozen: a broker that is frozen sends nothing; when it goes on it still has the sidecar's old consumer, for a
// moment beside the new one.
func (sc *scene) brokerIsFrozen(s *sidecar, node *brokertest.Node) {
	t := sc.t
	t.Helper()
	before, gate := sc.app.total(), make(chan struct{})
	sc.app.otherwise(func(*delivery) answer { return answer{status: 200, gate: gate} })
	ids := numbered("frozen", 40)
	sc.send(ids...)
	eventually(t, "four in flight", func() bool { return sc.app.total() == before+4 })
	node.Freeze()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	node.Thaw()
	s.awaitReady()
	close(gate)
	s.awaitAcked(ids...)
	if n := sc.app.total() - before; n > 44 {
		t.Errorf("%d receipts of 40 messages; only the four in flight may come twice", n)
	}
}

// brokerIsKilled: with messages in the service queue, in flight and in retry transit. Every confirmed one is answered 200
// in the end.
func (sc *scene) brokerIsKilled(s *sidecar, node *brokertest.Node) {
	t := sc.t
	t.Helper()
	sc.app.otherwise(func(d *delivery) answer {
		if d.Nth <= 2 {
			return status(409) // no reason for the breaker to pause
		}
		return status(200)
	})
	ids := numbered("killed", 200)
	sc.send(ids...)
	eventually(t, "messages in retry transit", func() bool { return sc.ready(sc.retryQueue()) > 10 })
	node.Kill()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	node.Start()
	s.awaitReady()
	brokertest.Eventually(t, 2*patience, "everything acked", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return !slices.Contains(s.log.outcomes(id), "ack") })
	})
	eventually(t, "empty queues", func() bool { return sc.ready(sc.queue()) == 0 && sc.ready(sc.retryQueue()) == 0 })
}

// TestMemoryAlarm: in an alarm acks go on, because the connection that consumes does not publish. What is to be parked
// stays, and no more is taken than the window holds; each is parked afterwards, and once, but for the publish that met the
// alarm. Package broker has what is shown of an alarm, publish and deadletter what they refuse in it.
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	const prefetch = 8
	sc := newScene(t).with("CONCURRENCY", "4", "PREFETCH", fmt.Sprint(prefetch), "MAX_RETRIES", "0").seed()
	sc.app.otherwise(func(*delivery) answer { return status(409) }) // a 500 would let the breaker pause before
	s := sc.run()
	sc.send("parked")
	s.awaitOutcome("parked", "park")
	sc.warm(s, 4)
	gate, good, bad := make(chan struct{}), numbered("good", 4), numbered("bad", 40)
	for _, id := range good {
		sc.app.on(id, answer{status: 200, gate: gate})
	}
	sc.send(good...)
	sc.app.awaitAll(good...)
	sc.send(bad...)

	calm := node.Alarm()
	close(gate)
	s.awaitAcked(good...)
	stays(t, time.Second, "no more in flight than the window holds", func() bool { return sc.ready(sc.queue()) >= len(bad)-prefetch })
	calm()
	sc.parkedOnce(append(bad, "parked")...)
}

// parkedOnce wants each message in the dead-letter queue, one of them perhaps twice: the publish that met the alarm may
// have run out of time with the copy already there.
func (sc *scene) parkedOnce(ids ...string) {
	sc.t.Helper()
	parked := map[string]int{}
	eventually(sc.t, "every message is parked", func() bool {
		for _, d := range sc.take(sc.dlq(), max(sc.ready(sc.dlq()), 0)) {
			parked[d.MessageId]++
		}
		return !slices.ContainsFunc(ids, func(id string) bool { return parked[id] == 0 })
	})
	copies := -len(ids)
	for _, id := range ids {
		copies += parked[id]
	}
	if copies > 1 {
		sc.t.Errorf("%d copies too many: %v", copies, parked)
	}
}
