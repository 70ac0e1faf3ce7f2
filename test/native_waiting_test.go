//go:build nightly

package test

import (
	"fmt"
	"strings"
	"testing"

	"sidecar/internal/brokertest"
)

// held counts all messages of the service queue, those that it delays too, as the broker's tools show them.
func (sc *scene) held() (n int) {
	sc.t.Helper()
	out := brokertest.Eval(sc.t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(<<%q>>, <<%q>>), [{messages, N}] = rabbit_amqqueue:info(Q, [messages]), N`,
		sc.queue(), brokertest.VhostName(sc.t)))
	_, _ = fmt.Sscan(out, &n)
	return n
}

// TestNativeWaiting: messages that the queue delays count for a limit of its length while none is ready, and a purge
// removes them, while the replica goes on counting them.
func TestNativeWaiting(t *testing.T) {
	t.Parallel()
	sc := nativeScene(t).with("RETRY_DELAY", "10m")
	sc.app.otherwise(func(*delivery) answer { return status(409) })
	s := sc.run()
	waiting := 3
	allWait := func() bool { return sc.held() == waiting && s.metric("sidecar_waiting_messages") == float64(waiting) }
	sc.send(numbered("m", waiting)...)
	eventually(t, "all wait", allWait)
	brokertest.Ctl(t, "set_policy", "short", ".*", `{"max-length":3}`)
	eventually(t, "the queue is full", func() bool {
		if !routed(sc, sc.exchange(), "more") {
			return true
		}
		waiting++ // the policy does not apply yet
		return false
	})
	eventually(t, "all wait", allWait)
	if n := sc.ready(sc.queue()); n != 0 {
		t.Errorf("%d messages are ready", n)
	}
	if n, err := sc.channel().QueuePurge(sc.queue(), false); n != waiting || err != nil {
		t.Errorf("the purge removed %d messages of %d that wait: %v", n, waiting, err)
	}
	eventually(t, "the queue is empty", func() bool { return sc.held() == 0 })
	if n := s.metric("sidecar_waiting_messages"); n != float64(waiting) || sc.ready(sc.dlq()) != 0 {
		t.Errorf("the replica counts %v, %d are parked", n, sc.ready(sc.dlq()))
	}
}

// TestNativeExpirationAfterADelay: an expiration that ends while the message waits takes effect when the delay ends: it is
// dead-lettered in the place of its next attempt. The delay must be longer than the expiration, which must be longer than
// the way to the app.
func TestNativeExpirationAfterADelay(t *testing.T) {
	t.Parallel()
	soon := nativeScene(t).with("RETRY_DELAY", "2s")
	soon.app.otherwise(func(*delivery) answer { return status(409) })
	soon.run()
	m := message("m")
	m.Expiration = "1500"
	soon.sendMessage(m)
	h := soon.take(soon.dlq(), 1)[0].Headers
	if death := fmt.Sprint(h["x-death"]); !strings.Contains(death, "reason:expired") || h["x-final-reason"] != nil {
		t.Errorf("%v", h)
	}
	if n := len(soon.app.Seen("m")); n > 1 {
		t.Errorf("POSTed %d times", n)
	}
}
