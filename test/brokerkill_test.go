package test

import (
	"slices"
	"testing"

	"sidecar/internal/brokertest"
)

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
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "AMQP_HEARTBEAT", "1s", "CONCURRENCY", "4", "PREFETCH", "8", "RETRY_DELAY", "1s")
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
	if n := len(sc.app.seen("restart")); n != 1 {
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
		if d.nth <= 2 {
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
