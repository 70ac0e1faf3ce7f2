package test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

const ttl = 300 * time.Millisecond // SIDECAR_RETRY_DELAY of every scene

// checkAttempts compares what the app received at each receipt with the contract, for a message that failed every time.
func checkAttempts(t *testing.T, sc *scene, list []*delivery) {
	t.Helper()
	const maxRetries = 10
	for i, d := range list {
		last := ""
		if i == maxRetries {
			last = "true"
		}
		want := map[string]string{
			"Amqp-Delivery-Attempt": fmt.Sprint(i + 1), "Amqp-Retry-Count": fmt.Sprint(i), "Amqp-Max-Retries": fmt.Sprint(maxRetries),
			"Amqp-Last-Attempt": last, "Amqp-Redelivered": "false",
			"Amqp-Exchange": sc.exchange(), "Amqp-Routing-Key": "order.created",
			"Amqp-Header-X-Original-Exchange": "", "Amqp-Header-X-Original-Routing-Key": "", "Amqp-Header-X-Original-Queue": "",
		}
		if i > 0 {
			if gap := d.At.Sub(list[i-1].At); gap < ttl {
				t.Errorf("attempt %d came %v after the one before, the retry queue holds for %v", i+1, gap, ttl)
			}
		}
		for k, v := range want {
			if got := d.Header.Get(k); got != v {
				t.Errorf("attempt %d: %s is %q, want %q", i+1, k, got, v)
			}
		}
		if string(d.Body) != string(list[0].Body) || d.Header.Get("Content-Type") != list[0].Header.Get("Content-Type") {
			t.Errorf("attempt %d: body or content type differ from the first", i+1)
		}
	}
}

// TestElevenAttemptsThenParked is the main promise: the headers of each attempt, the parked message, the lines of the log.
func TestElevenAttemptsThenParked(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	sc.app.on("bad", status(500))
	m := message("bad")
	m.Headers = amqp.Table{"x-mine": "stays", "n": int32(7)}
	m.CorrelationId, m.Type, m.Priority, m.AppId = "corr", "t", 3, "shop"
	sc.sendMessage(m)
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	list := sc.app.Seen("bad")
	if len(list) != 11 {
		t.Fatalf("%d attempts, want 11", len(list))
	}
	checkAttempts(t, sc, list)
	checkParked(t, sc, d, m)
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

func checkParked(t *testing.T, sc *scene, d amqp.Delivery, m amqp.Publishing) {
	t.Helper()
	want := map[string]any{
		"x-original-queue": sc.queue(), "x-original-exchange": sc.exchange(), "x-original-routing-key": "order.created",
		"x-final-reason": "max_retries", "x-mine": "stays", "n": int32(7),
	}
	for k, v := range want {
		if d.Headers[k] != v {
			t.Errorf("%s is %#v, want %#v", k, d.Headers[k], v)
		}
	}
	if asInt(d.Headers["x-final-status-code"]) != 500 || asInt(d.Headers["x-final-retry-count"]) != 10 {
		t.Errorf("x-final-status-code %#v, x-final-retry-count %#v, want the integers 500 and 10", d.Headers["x-final-status-code"], d.Headers["x-final-retry-count"])
	}
	if v, there := d.Headers["x-final-error"]; there {
		t.Errorf("x-final-error %v beside an answer", v)
	}
	at, _ := d.Headers["x-final-at"].(string)
	if parsed, err := time.Parse(time.RFC3339, at); err != nil || time.Since(parsed) > time.Hour || time.Until(parsed) > time.Minute {
		t.Errorf("x-final-at is %q, want the time of parking", at)
	}
	if string(d.Body) != string(m.Body) || d.MessageId != m.MessageId || d.ContentType != m.ContentType || d.CorrelationId != m.CorrelationId ||
		d.Type != m.Type || d.Priority != m.Priority || d.AppId != m.AppId {
		t.Errorf("body or properties of the parked message changed: %+v", d)
	}
	if d.DeliveryMode != amqp.Persistent {
		t.Errorf("delivery mode %d, want 2", d.DeliveryMode)
	}
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
