package test

import (
	"testing"
)

// TestOneAtATimeKeepsTheOrder: the only order that is promised.
func TestOneAtATimeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "1", "PREFETCH", "1").seed()
	ids := numbered("m", 200)
	sc.send(ids...)
	s := sc.run()
	sc.app.awaitAll(ids...)
	for i, d := range sc.app.all() {
		if d.id != ids[i] {
			t.Errorf("receipt %d is %s", i, d.id)
			break
		}
	}
	sc.settledAll(s, 0)
}

// TestNeverMoreAtOnceThanConcurrency, with a window of prefetched messages behind it.
func TestNeverMoreAtOnceThanConcurrency(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "3", "PREFETCH", "40").seed()
	sc.app.otherwise(func(d *delivery) answer {
		if len(d.id)%2 == 0 && d.nth == 1 {
			return answer{status: 409, gate: soon()} // a 500 would let the breaker pause
		}
		return answer{status: 200, gate: soon()}
	})
	ids := numbered("m", 60)
	sc.send(ids...)
	s := sc.run()
	s.awaitAcked(ids...)
	if n := sc.app.Peak(); n > 3 || n < 2 {
		t.Errorf("%d requests at once with SIDECAR_CONCURRENCY=3", n)
	}
	sc.settledAll(s, 0)
}

// TestTwoReplicas share a queue: each message once.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	a, b := sc.run(), sc.run()
	ids := numbered("m", 400)
	sc.send(ids...)
	sc.app.awaitAll(ids...)
	eventually(t, "both have worked", func() bool {
		return a.metric("sidecar_messages_settled_total")+b.metric("sidecar_messages_settled_total") == 400
	})
	a.stop()
	sc.settledAll(b, 0)
	checkUncounted(t, sc, ids)
}

// TestRedeliveredAfterACrash: the app gets it as redelivered, the attempt is not counted.
func TestRedeliveredAfterACrash(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "1", "QUEUE_TYPE", queueType)
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			hang := answer{gate: never}
			sc.app.on("m", hang, hang, hang, hang, status(200))
			s := sc.run()
			sc.send("m")
			for i := range 4 {
				d := sc.app.await("m", i+1)[i]
				if want := map[bool]string{false: "false", true: "true"}[i > 0]; d.header.Get("Amqp-Redelivered") != want || d.number("Amqp-Retry-Count") != 0 {
					t.Errorf("receipt %d: Amqp-Redelivered %s, Amqp-Retry-Count %s", i+1, d.header.Get("Amqp-Redelivered"), d.header.Get("Amqp-Retry-Count"))
				}
				s.kill()
				s = sc.run()
			}
			sc.app.await("m", 5)
			sc.settledAll(s, 0)
		})
	}
}

// TestStuckHead: one message that takes for ever holds back no message behind it, and when the sidecar dies everything that
// was answered is gone from the queue and the stuck one, only it, is still there.
func TestStuckHead(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("CONCURRENCY", "4", "PREFETCH", "8", "QUEUE_TYPE", queueType)
			never := make(chan struct{})
			t.Cleanup(func() { close(never) })
			sc.app.on("stuck", answer{gate: never}, status(200))
			s := sc.run()
			sc.warm(s, 4)
			sc.send("stuck")
			sc.app.await("stuck", 1)
			ids := numbered("m", 200)
			sc.send(ids...)
			s.awaitAcked(ids...)
			// A settlement is logged before its frame is on the wire; the metric counts what was really acked.
			eventually(t, "all acks sent", func() bool { return s.metric("sidecar_messages_settled_total", `outcome="ack"`) == 216 })
			s.kill()
			eventually(t, "the stuck message, alone, back in the queue", func() bool { return sc.ready(sc.queue()) == 1 })
			s = sc.run()
			sc.app.await("stuck", 2)
			sc.settledAll(s, 0)
			checkUncounted(t, sc, ids)
		})
	}
}
