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
	for i, d := range sc.app.Requests() {
		if d.ID != ids[i] {
			t.Errorf("receipt %d is %s", i, d.ID)
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
