package test

import (
	"slices"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// TestBadMessagesInFront: 200 messages that the app always fails are in front of good ones, or failed before the first
// good one came. The good ones do not wait until the breaker has let the bad ones through, and the bad ones are parked
// after exactly their attempts.
func TestBadMessagesInFront(t *testing.T) {
	t.Parallel()
	for name, failing := range map[string]apptest.Reply{"fanout": status(500).reply(), "native": apptest.Reset} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name == "native" {
				brokertest.Delaying(t)
			}
			sc := newScene(t)
			list := presets(sc.prefix)
			sc.badInFront(list[slices.IndexFunc(list, func(p preset) bool { return p.name == name })], failing, name == "native")
		})
	}
}

// TestRestartInAnOutage: while the app fails everything the backlog is not pushed into the dead-letter queue, also by a
// sidecar that is restarted in the outage and finds only messages that failed before.
func TestRestartInAnOutage(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("RETRY_DELAY", "100ms")
	well := make(chan struct{})
	sc.app.otherwise(func(*delivery) answer {
		select {
		case <-well:
			return status(200)
		default:
			return status(503)
		}
	})
	s := sc.run()
	ids := numbered("m", 100)
	sc.send(ids...)
	sc.app.awaitAll(ids...)
	s.stop()
	s = sc.run()
	time.Sleep(3 * time.Second) // longer than eleven attempts at 100 ms take
	close(well)
	s.awaitAcked(ids...)
	sc.settledAll(s, 0)
}

func (sc *scene) badInFront(p preset, failing apptest.Reply, late bool) {
	sc.t.Helper()
	sc.with("TOPOLOGY", p.name).with(p.env...)
	bad, good := numbered("bad", 200), numbered("good", 30)
	for _, id := range bad {
		sc.app.On(id, failing)
	}
	s := sc.run()
	send := func(ids ...string) { sc.publish(p.exchange, p.key, messages(ids...)...) }
	send(numbered("first", 10)...)
	send(bad...)
	if late {
		sc.app.awaitAll(bad...)
	}
	sent := map[string]time.Time{}
	for _, id := range good {
		sent[id] = time.Now()
		send(id)
		time.Sleep(100 * time.Millisecond)
	}
	s.awaitAcked(good...)
	var waits []time.Duration
	for _, id := range good {
		waits = append(waits, sc.app.Seen(id)[0].At.Sub(sent[id]))
	}
	slices.Sort(waits)
	sc.t.Logf("good messages waited %v at the median, %v at the worst", waits[len(waits)/2], waits[len(waits)-1])
	for _, d := range sc.take(p.dlq, len(bad)) {
		if n := len(sc.app.Seen(d.MessageId)); n != p.retries+1 || d.Headers["x-final-reason"] != "max_retries" {
			sc.t.Errorf("%s was parked after %d attempts with %v", d.MessageId, n, d.Headers)
		}
	}
}
