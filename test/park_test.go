package test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// failsToPark runs the sidecar and deletes the dead-letter queue before the app fails message m. In verify mode the
// park fails until the queue is there again.
func failsToPark(t testing.TB, sc *scene) *sidecar {
	t.Helper()
	gate := make(chan struct{})
	sc.app.on("m", answer{status: 500, gate: gate}, status(500))
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	sc.deleteQueue(sc.dlq())
	close(gate)
	// Declare mode may put the queue back by itself.
	eventually(t, "a failed park in the metrics, or the park", func() bool {
		return s.metric("sidecar_park_failures_total") > 0 || sc.ready(sc.dlq()) > 0
	})
	return s
}

// TestDLQGoneAndEnded: what could not be parked is in the service queue when the sidecar has been killed or stopped.
func TestDLQGoneAndEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*sidecar){"killed": (*sidecar).kill, "stopped": (*sidecar).stop} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0", "TOPOLOGY_MODE", "verify", "SHUTDOWN_GRACE", "1h").seed()
			end(failsToPark(t, sc))
			eventually(t, "the message back in the service queue", func() bool { return sc.ready(sc.queue()) == 1 })
		})
	}
}

// TestFullDLQRefuses: a policy-like limit on the DLQ nacks the publish; nothing is lost.
func TestFullDLQRefuses(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0", "TOPOLOGY_MODE", "none").seed()
	sc.deleteQueue(sc.dlq())
	must.Do(t, sc.declare(sc.dlq(), amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"}))
	sc.app.otherwise(func(*delivery) answer { return status(500) })
	ids := numbered("m", 4)
	sc.send(ids...)
	s := sc.run()
	eventually(t, "a failed park in the metrics", func() bool { return s.metric("sidecar_park_failures_total") > 0 })
	found := map[string]bool{}
	for range ids {
		found[sc.take(sc.dlq(), 1)[0].MessageId] = true // makes room for the next one
	}
	if len(found) != len(ids) {
		t.Errorf("parked %v, want each of %v once", found, ids)
	}
	sc.settledAll(s, 0)
}
