package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
)

// alarmed reports whether the sidecar shows an alarm of memory, on all its surfaces.
func (s *sidecar) alarmed() bool {
	s.t.Helper()
	_, status := s.get(s.control, "/status")
	_, ready := s.get(s.admin, "/readyz")
	return strings.Contains(status, `"blocked":{"since":"`) && strings.Contains(status, `"reason":"low on memory"`) &&
		strings.Contains(ready, `{"name":"publish_endpoint","ok":false,"detail":"blocked"}`) && s.metric("sidecar_amqp_blocked") == 1
}

// TestMemoryAlarm: in an alarm acks go on, because the connection that consumes does not publish. What is to be parked
// stays, and no more is taken than the window holds; each is parked afterwards, and once, but for the publish that met the
// alarm. A redrive and the publish endpoint refuse. The alarm and its end are shown, also by a sidecar that only publishes
// and by one that is started in it.
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	node := brokertest.OwnNode(t)
	const prefetch = 8
	sc := publishing(t).with("CONCURRENCY", "4", "PREFETCH", fmt.Sprint(prefetch))
	sc.app.otherwise(func(*delivery) answer { return status(409) }) // a 500 would let the breaker pause before
	s := sc.run()
	sc.send("parked")
	s.awaitOutcome("parked", "park")
	sidecars := []*sidecar{s, start(t, sc.envWith("SIDECAR_CONSUME", "off")).awaitReady()}
	sc.warm(s, 4)
	gate, good, bad := make(chan struct{}), numbered("good", 4), numbered("bad", 40)
	for _, id := range good {
		sc.app.on(id, answer{status: 200, gate: gate})
	}
	sc.send(good...)
	sc.app.awaitAll(good...)
	sc.send(bad...)

	calm := node.Alarm()
	sidecars = append(sidecars, start(t, sc.envWith("SIDECAR_CONSUME", "off")))
	close(gate)
	s.awaitAcked(good...)
	for _, s := range sidecars {
		eventually(t, "the publish endpoint refuses", func() bool {
			status, _, body := s.send("/publish/default/k", "x", nil)
			return status == http.StatusServiceUnavailable && strings.Contains(body, "blocked")
		})
		eventually(t, "the alarm is shown", s.alarmed)
	}
	if !sidecars[1].ready() {
		t.Error("a sidecar that has nothing to park is not ready in the alarm")
	}
	c := s.api("")
	if code, _, body := c.ask(http.MethodPost, "/dlq/redrive", `{"all":true}`); code != http.StatusAccepted {
		t.Fatalf("%d %s", code, body)
	}
	eventually(t, "the redrive is refused", func() bool {
		_, _, body := c.ask(http.MethodGet, "/dlq/operations", "")
		return strings.Contains(body, "blocked by the broker's resource alarm")
	})
	stays(t, time.Second, "no more in flight than the window holds", func() bool { return sc.ready(sc.queue()) >= len(bad)-prefetch })
	calm()
	for _, s := range sidecars {
		s.calm()
	}
	sc.parkedOnce(append(bad, "parked")...)
}

// calm waits until the sidecar shows no alarm, and publishes again.
func (s *sidecar) calm() {
	t := s.t
	t.Helper()
	eventually(t, "the end of the alarm is shown", func() bool {
		_, body := s.get(s.control, "/status")
		return !strings.Contains(body, "blocked") && s.metric("sidecar_amqp_blocked") == 0
	})
	for _, msg := range []string{"publishing blocked", "publishing unblocked"} {
		if n := len(s.log.find(func(e entry) bool { return e.text("msg") == msg })); n != 1 {
			t.Errorf("%d lines %q", n, msg)
		}
	}
	eventually(t, "messages are published again", func() bool {
		status, _, _ := s.send("/publish/default/k", "x", nil)
		return status == http.StatusNoContent
	})
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
