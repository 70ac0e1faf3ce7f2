package test

import (
	"slices"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// quorumOnDisk makes the node write the directory of its quorum queues now. RabbitMQ 3.10 does so up to three seconds
// late, and a queue of a node that is killed earlier is empty and without a leader afterwards, regardless of which
// connection declared it.
func quorumOnDisk(t testing.TB) {
	t.Helper()
	brokertest.Eval(t, "[ok = dets:sync(T) || T <- dets:all()]")
}

// TestBrokerKilledWhileMessagesWaitForTheirRetry: kill -9 of a broker with quorum queues, with messages in the service
// queue, in flight and in retry transit. Every confirmed one is answered 200 in the end.
func TestBrokerKilledWhileMessagesWaitForTheirRetry(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum")
	sc.app.otherwise(func(d *delivery) answer {
		if d.nth <= 2 {
			return status(409) // no reason for the breaker to pause
		}
		time.Sleep(time.Millisecond)
		return status(200)
	})
	s := sc.run()
	quorumOnDisk(t)
	ids := numbered("m", 1000)
	for i := 0; i < len(ids); i += 500 {
		sc.send(ids[i : i+500]...)
	}
	eventually(t, "messages in retry transit", func() bool { return sc.ready(sc.retryQueue()) > 50 })
	node.Kill()
	eventually(t, "GET /readyz is not 200", func() bool { return !s.ready() })
	node.Start()
	s.awaitReady()
	brokertest.Eventually(t, 2*patience, "everything acked", func() bool {
		return !slices.ContainsFunc(ids, func(id string) bool { return len(sc.app.seen(id)) < 3 })
	})
	for _, id := range ids {
		eventually(t, id+" acked", func() bool { return slices.Contains(s.log.outcomes(id), "ack") })
	}
	eventually(t, "empty queues", func() bool { return sc.ready(sc.queue()) == 0 && sc.ready(sc.retryQueue()) == 0 })
	sc.settledAll(s, 0)
}
