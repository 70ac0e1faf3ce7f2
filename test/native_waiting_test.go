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
	sc.send(numbered("m", 3)...)
	eventually(t, "all wait", func() bool { return sc.held() == 3 && s.metric("sidecar_waiting_messages") == 3 })
	brokertest.Ctl(t, "set_policy", "short", ".*", `{"max-length":3}`)
	eventually(t, "the queue is full", func() bool { return !sc.accepted(message("more")) })
	if n := sc.ready(sc.queue()); n != 0 {
		t.Errorf("%d messages are ready", n)
	}
	if n, err := sc.channel().QueuePurge(sc.queue(), false); n != 3 || err != nil {
		t.Errorf("the purge removed %d messages of 3 that wait: %v", n, err)
	}
	eventually(t, "the queue is empty", func() bool { return sc.held() == 0 })
	if n := s.metric("sidecar_waiting_messages"); n != 3 || sc.ready(sc.dlq()) != 0 {
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
	if n := len(soon.app.seen("m")); n > 1 {
		t.Errorf("POSTed %d times", n)
	}
}
