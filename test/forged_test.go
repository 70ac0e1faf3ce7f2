package test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// forgedHistories are x-death and count headers that no broker wrote. Any client that may publish can send them.
func forgedHistories(sc *scene) map[string]amqp.Table {
	entry := func(edit amqp.Table) amqp.Table {
		e := amqp.Table{"queue": sc.queue(), "reason": "rejected", "count": int64(1), "exchange": sc.exchange(), "routing-keys": []any{"k"}}
		for k, v := range edit {
			if e[k] = v; v == "absent" {
				delete(e, k)
			}
		}
		return e
	}
	death := func(v any) amqp.Table { return amqp.Table{"x-death": v} }
	thousand := make([]any, 1000)
	for i := range thousand {
		thousand[i] = amqp.Table{"queue": fmt.Sprint("q", i), "reason": "expired", "count": int64(1)}
	}
	return map[string]amqp.Table{
		"string": death("rejected"), "int": death(int64(7)), "nil": death(nil), "table": death(amqp.Table{"count": int64(1)}), "empty": death([]any{}),
		"ints": death([]any{int64(1), int64(2)}), "strings": death([]any{"a"}), "nested": death([]any{[]any{amqp.Table{}}}), "bare": death([]any{amqp.Table{}}),
		"no-count": death([]any{entry(amqp.Table{"count": "absent"})}), "negative": death([]any{entry(amqp.Table{"count": int64(-1)})}),
		"max": death([]any{entry(amqp.Table{"count": int64(math.MaxInt64)})}), "text-count": death([]any{entry(amqp.Table{"count": "99"})}),
		"nil-count": death([]any{entry(amqp.Table{"count": nil})}), "float-count": death([]any{entry(amqp.Table{"count": math.NaN()})}),
		"int-queue": death([]any{entry(amqp.Table{"queue": int64(1)})}), "int-reason": death([]any{entry(amqp.Table{"reason": int64(1)})}),
		"int-keys": death([]any{entry(amqp.Table{"routing-keys": int64(1)})}), "no-keys": death([]any{entry(amqp.Table{"routing-keys": "absent"})}),
		"mixed-keys": death([]any{entry(amqp.Table{"routing-keys": []any{int64(1)}})}), "int-exchange": death([]any{entry(amqp.Table{"exchange": int64(1)})}),
		"text-time": death([]any{entry(amqp.Table{"time": "yesterday"})}), "unknown-reason": death([]any{entry(amqp.Table{"reason": "bored"})}),
		"twice":         death([]any{entry(nil), entry(amqp.Table{"count": int64(2)})}),
		"other-queue":   death([]any{entry(amqp.Table{"queue": "other.queue", "count": int64(99)})}),
		"expired-only":  death([]any{entry(amqp.Table{"reason": "expired", "count": int64(99)})}),
		"thousand":      death(thousand),
		"delivery-text": {"x-delivery-count": "zzz"}, "delivery-huge": {"x-delivery-count": int64(math.MaxInt64)}, "acquired": {"x-acquired-count": "zzz"},
		"retry-text": {"x-retry-count": "7 "}, "attempt-text": {"x-delivery-count": "+7"}, "retry-negative": {"x-retry-count": int64(-7)}, "retry-nan": {"x-retry-count": math.NaN()},
		"final-text": {"x-final-retry-count": "7"}, "final-table": {"x-final-retry-count": amqp.Table{}}, "retry-bytes": {"x-retry-count": []byte{9}},
		"overflow":    {"x-retry-count": int64(math.MaxInt64), "x-death": []any{entry(amqp.Table{"count": int64(math.MaxInt64)})}},
		"ninety-nine": death([]any{entry(amqp.Table{"count": int64(99)})}),
		"final-99":    {"x-final-retry-count": int64(99)}, "first-death": {"x-first-death-queue": int64(1), "x-first-death-reason": amqp.Table{}},
	}
}

// TestForgedHistoryIsStillTriedOnce: whatever the publisher claims, the app sees the message, and a 200 acks it.
func TestForgedHistoryIsStillTriedOnce(t *testing.T) {
	t.Parallel()
	sc := newScene(t).seed()
	forged := forgedHistories(sc)
	s := sc.run()
	for id, h := range forged {
		m := message(id)
		if m.Headers = h; !sc.accepted(m) {
			t.Logf("this broker refuses %q itself", id)
			delete(forged, id)
		}
	}
	for id := range forged {
		d := sc.app.await(id, 1)[0]
		if n := d.number("Amqp-Retry-Count"); n < 0 || d.number("Amqp-Delivery-Attempt") != n+1 {
			t.Errorf("%s: Amqp-Retry-Count %q, Amqp-Delivery-Attempt %q", id, d.header.Get("Amqp-Retry-Count"), d.header.Get("Amqp-Delivery-Attempt"))
		}
	}
	for _, id := range []string{"other-queue", "expired-only", "retry-text", "attempt-text", "delivery-huge", "retry-negative", "final-text", "negative", "text-count", "string", "empty"} {
		if n := sc.app.seen(id)[0].number("Amqp-Retry-Count"); n != 0 {
			t.Errorf("%s: Amqp-Retry-Count %d, want 0", id, n)
		}
	}
	sc.settledAll(s, 0)
}

// TestForgedHistoryThatFails ends parked, one message at a time or all together, and takes no neighbour along: a
// rejected message with a broken x-death crashes the queue of an older broker.
func TestForgedHistoryThatFails(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "2", "QUEUE_TYPE", queueType)
			forged := forgedHistories(sc)
			sc.app.otherwise(func(d *delivery) answer {
				if strings.HasPrefix(d.id, "good") {
					return status(200)
				}
				return status(500)
			})
			s := sc.run()
			good := numbered("good", len(forged))
			i := 0
			for id, h := range forged {
				m := message(id)
				if m.Headers = h; !sc.accepted(m) {
					delete(forged, id)
				}
				sc.send(good[i])
				i++
			}
			sc.app.awaitAll(good...)
			parked := map[string]bool{}
			for end := time.Now().Add(patience); len(parked) < len(forged) && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				for _, d := range sc.take(sc.dlq(), max(sc.ready(sc.dlq()), 0)) {
					parked[d.MessageId] = true
					if d.Headers["x-final-reason"] == nil || asInt(d.Headers["x-final-retry-count"]) < 0 {
						t.Errorf("%s parked with %v", d.MessageId, d.Headers)
					}
				}
			}
			for id := range forged {
				if n := len(sc.app.seen(id)); !parked[id] || n < 1 || n > 3 {
					t.Errorf("%s: parked %v after %d attempts; the log says %v", id, parked[id], n, s.log.outcomes(id))
				}
			}
			sc.settledAll(s, 0)
			for _, id := range good {
				if n := len(sc.app.seen(id)); n != 1 {
					t.Errorf("neighbour %s was received %d times", id, n)
				}
			}
		})
	}
}

// TestTablesTheClientLibraryRefuses: other clients write deeper and wider tables than the Go client reads, and the
// broker takes them. One such message must not stop the queue for ever.
func TestTablesTheClientLibraryRefuses(t *testing.T) {
	t.Parallel()
	for name, h := range map[string]table{
		"depth-30": nested(30), "depth-40": nested(40), "depth-100": nested(100), "depth-1000": nested(1000),
		"array-depth-100": nestedArray(100), "wide-8000": wide(8000), "wide-9000": wide(9000), "array-9000": wideArray(9000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "0").seed()
			if err := brokertest.DialRaw(t, brokertest.URL(t)).Publish(sc.exchange(), "k", h, []byte("{}")); err != nil {
				t.Logf("this broker refuses the message itself: %v", err)
				return
			}
			sc.app.on("", status(500)) // it has no message id
			s := sc.run()
			good := numbered("good", 10)
			sc.send(good...)
			sc.app.awaitAll(good...)
			s.awaitAcked(good...)
			eventually(t, "the odd message parked", func() bool { return sc.ready(sc.dlq()) == 1 })
			s.stop()
			if n := sc.ready(sc.queue()); n != 0 {
				t.Errorf("%d messages left in the service queue", n)
			}
		})
	}
}

// TestMessageThatDiedBeforeForAnotherReason: a message that once expired from this very queue, or was pushed out of it,
// or ran into its delivery limit, carries that in x-death for ever, also when a user moves it back. When it is
// rejected, a broker of the 3.x line takes its way through the retry queue for an automatic cycle and drops it without
// a word.
func TestMessageThatDiedBeforeForAnotherReason(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			sc := newScene(t).with("MAX_RETRIES", "2", "QUEUE_TYPE", queueType)
			s := sc.run()
			ids := []string{"expired", "maxlen", "delivery_limit"}
			for _, reason := range ids {
				sc.app.on(reason, status(500), status(500), status(200))
				sc.sendHeaders(reason, amqp.Table{"x-death": []any{amqp.Table{
					"queue": sc.queue(), "reason": reason, "count": int64(1), "exchange": sc.exchange(), "routing-keys": []any{"order.created"}, "time": time.Now(),
				}}})
			}
			for _, id := range ids {
				for i, d := range sc.app.await(id, 3) {
					if d.number("Amqp-Retry-Count") != i {
						t.Errorf("%s: receipt %d has Amqp-Retry-Count %s", id, i+1, d.header.Get("Amqp-Retry-Count"))
					}
				}
			}
			sc.settledAll(s, 0)
		})
	}
}
