package test

import (
	"testing"
)

// TestOneAtATimeKeepsTheOrder: the only order that is promised.
func TestOneAtATimeKeepsTheOrder(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("CONCURRENCY", "1", "PREFETCH", "1").seed()
	ids := numbered("m", 50)
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

// TestTwoReplicas share a queue: each message once.
func TestTwoReplicas(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	a, b := sc.run(), sc.run()
	ids := numbered("m", 100)
	sc.send(ids...)
	sc.app.awaitAll(ids...)
	eventually(t, "each is settled", func() bool {
		return a.metric("sidecar_messages_settled_total")+b.metric("sidecar_messages_settled_total") == 100
	})
	a.stop()
	sc.settledAll(b, 0)
	checkUncounted(t, sc, ids)
}

// TestRedeliveredAfterACrash: the app gets it as redelivered, the attempt is not counted.
func TestRedeliveredAfterACrash(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1").seed()
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	hang := answer{gate: never}
	sc.app.on("m", hang, hang, status(200))
	s := sc.run()
	sc.send("m")
	for i, want := range []string{"false", "true", "true"} {
		d := sc.app.await("m", i+1)[i]
		if d.header.Get("Amqp-Redelivered") != want || d.number("Amqp-Retry-Count") != 0 {
			t.Errorf("receipt %d: Amqp-Redelivered %s, Amqp-Retry-Count %s", i+1, d.header.Get("Amqp-Redelivered"), d.header.Get("Amqp-Retry-Count"))
		}
		if i < 2 {
			s.kill()
			s = sc.run()
		}
	}
	sc.settledAll(s, 0)
}
