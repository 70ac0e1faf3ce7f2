package test

import (
	"slices"
	"testing"
)

// TestElevenAttemptsThenParked is the main promise, with the defaults: the attempts, the parked message, the lines of the log.
// topologytest TestPresets has every header of both.
func TestElevenAttemptsThenParked(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.app.on("bad", status(500))
	sc.send("bad")
	s := sc.run()
	if h := sc.take(sc.dlq(), 1)[0].Headers; h["x-final-reason"] != "max_retries" || asInt(h["x-final-status-code"]) != 500 || asInt(h["x-final-retry-count"]) != 10 {
		t.Errorf("parked with %v", h)
	}
	if n := len(sc.app.Seen("bad")); n != 11 {
		t.Errorf("%d attempts, want 11", n)
	}
	eventually(t, "settled with the event RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED", func() bool {
		events := s.log.find(func(e entry) bool { return e["event"] == "RABBITMQ_MESSAGE_MAX_RETRIES_EXCEEDED" })
		return len(events) == 1 && events[0].is("settled") && events[0].text("message_id") == "bad"
	})
	want := append(slices.Repeat([]string{"retry"}, 10), "park")
	if got := s.log.outcomes("bad"); !slices.Equal(got, want) {
		t.Errorf("the log says %v", got)
	}
	lines := s.log.settled("bad")
	for _, e := range lines {
		if id := e.text("trace_id"); len(id) != 32 || id != lines[0].text("trace_id") {
			t.Errorf("trace_id %q, want that of the first attempt, %q", id, lines[0].text("trace_id"))
		}
	}
	sc.settledAll(s, 0)
}

// awaitOutcome waits until the log has that settlement of the message.
func (s *sidecar) awaitOutcome(id, outcome string) {
	s.t.Helper()
	eventually(s.t, "log line: "+id+" settled as "+outcome, func() bool { return slices.Contains(s.log.outcomes(id), outcome) })
}

func (s *sidecar) awaitAcked(ids ...string) {
	s.t.Helper()
	for _, id := range ids {
		s.awaitOutcome(id, "ack")
	}
}

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
