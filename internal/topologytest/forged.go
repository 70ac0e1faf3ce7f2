package topologytest

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// forgedHistory: whatever a publisher claims about the past of a message, it has its try and ends: taken when the app
// takes it, given up when it does not, and no neighbour is lost with it. (RabbitMQ 3.10 loses the queue's process when
// a message with a broken x-death is rejected.)
func forgedHistory(t *testing.T, r *shared) {
	sent := map[string]bool{} // by id
	ch := brokertest.Channel(t, r.url)
	for name, headers := range forged(r.plan) {
		m := message("forged-" + name)
		m.Headers = headers
		r.app.On(m.MessageId, failing())
		if !accepted(t, ch, r.plan.Queue, m) { // a broker that refuses it itself closes the channel
			ch = brokertest.Channel(t, r.url)
			continue
		}
		sent[m.MessageId] = true
	}
	if len(sent) < 20 {
		t.Errorf("the broker takes only %d of the messages", len(sent))
	}
	for id := range sent {
		d := r.givenUp(t, id, "max_retries")
		if n := len(r.app.Seen(id)); n < 1 || n > r.plan.MaxRetries+1 {
			t.Errorf("%s was received %d times", id, n)
		}
		if d != nil && (d.Headers["x-final-reason"] != "max_retries" || string(d.Body) != "body of "+id) {
			t.Errorf("%s is parked as %q with %v", id, d.Body, d.Headers)
		}
	}
	r.uncounted(t, sent)
	taken := message("forged-taken")
	taken.Headers = forged(r.plan)["max"]
	r.put(t, taken)
	r.acked(t, taken.MessageId)
	// No retry is left, but the try is.
	for _, name := range []string{"max", "overflow", "retry-huge", "retry-decimal", "attempt-decimal", "final-huge"} {
		list := r.app.Seen("forged-" + name)
		// RabbitMQ 3.10 loses the process of a queue, see above, and delivers its messages again, with its own count in place
		// of this one. So a copy that a retry publishes has none.
		replaced := func(a *apptest.Request) bool { return a.Header.Get("Amqp-Redelivered") == "true" }
		if name == "attempt-decimal" && slices.ContainsFunc(list, replaced) {
			continue
		}
		if len(list) > 1 {
			t.Errorf("%s: %d attempts, want one", name, len(list))
		}
	}
}

// copiedHistory: a producer that copies the headers of a message it has received publishes a message of its own, whose
// exchange and key they do not change on any attempt. Retries that return through the same exchange with the key they
// have cannot be distinguished from it.
func copiedHistory(t *testing.T, r *shared) {
	exchange, key, headers := front(r.plan)
	if back := r.plan.WayBack(); back != nil && back.Exchange == exchange && back.Key == "" {
		return
	}
	copies := map[string]amqp.Table{
		"counted": {"x-retry-count": int32(0)}, "parked": {"x-final-retry-count": int32(0)}, "uncounted": {},
		"rejected": {"x-death": []any{amqp.Table{"queue": r.plan.Queue, "reason": "rejected", "count": int64(0),
			"exchange": "another", "routing-keys": []any{"another.key"}, "time": time.Now()}}},
	}
	ch := brokertest.Channel(t, r.url)
	for name, h := range copies {
		m := message("copied-" + name)
		r.app.On(m.MessageId, failing())
		m.Headers = amqp.Table{"x-original-exchange": "another", "x-original-routing-key": "another.key",
			"x-original-queue": "another.queue"}
		maps.Copy(m.Headers, headers)
		maps.Copy(m.Headers, h)
		brokertest.Publish(t, ch, exchange, key, m)
	}
	for name := range copies {
		id := "copied-" + name
		d := r.givenUp(t, id, "max_retries")
		r.attempts(t, id, r.plan.MaxRetries+1)
		if d != nil && (d.Headers["x-original-exchange"] != exchange || d.Headers["x-original-routing-key"] != key ||
			d.Headers["x-original-queue"] != r.plan.Queue) {
			t.Errorf("%s is parked with %v", id, d.Headers)
		}
	}
}

// uncounted: what does not count rejects of this queue is not a count, so these have all their attempts.
func (r *shared) uncounted(t *testing.T, sent map[string]bool) {
	t.Helper()
	for _, name := range []string{"string", "empty", "negative", "text-count", "foreign", "expired", "maxlen",
		"delivery_limit", "retry-text", "retry-negative", "attempt-text", "delivery-huge"} {
		if id := "forged-" + name; sent[id] {
			r.receipts(t, id, counting(r.plan.MaxRetries)...)
		}
	}
}

// accepted publishes a message that the broker may refuse.
func accepted(t *testing.T, ch *amqp.Channel, queue string, m amqp.Publishing) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	confirm, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
	if err != nil {
		t.Fatalf("publish %s: %v", m.MessageId, err)
	}
	ok, err := confirm.WaitContext(ctx)
	return ok && err == nil
}

// forged are x-death and count headers that no broker wrote. Any client that may publish can send them.
func forged(p *topology.Plan) map[string]amqp.Table {
	exchange, key, _ := front(p)
	entry := func(edit ...any) amqp.Table {
		e := amqp.Table{"queue": p.Queue, "reason": "rejected", "count": int64(1), "exchange": exchange,
			"routing-keys": []any{key}, "time": time.Now()}
		for i := 0; i < len(edit); i += 2 {
			e[edit[i].(string)] = edit[i+1]
		}
		return e
	}
	without := func(key string) amqp.Table {
		e := entry()
		delete(e, key)
		return e
	}
	cases := maps.Clone(forgedCounts)
	cases["overflow"] = amqp.Table{"x-retry-count": int64(math.MaxInt64), "x-death": []any{entry()}}
	deaths := map[string]any{
		"string": "rejected", "empty": []any{}, "max": []any{entry("count", int64(math.MaxInt64))},
		"negative": []any{entry("count", int64(-1))}, "text-count": []any{entry("count", "99")},
		"foreign": []any{entry("queue", "other.queue", "count", int64(99))},
		"expired": []any{entry("reason", "expired")}, "maxlen": []any{entry("reason", "maxlen")},
		"delivery_limit": []any{entry("reason", "delivery_limit")},
	}
	if len(p.Waits) > 0 && p.Waits[0].By == topology.ByReject { // else the broker never extends it
		maps.Copy(deaths, map[string]any{
			"int": int64(7), "nil": nil, "table": amqp.Table{"count": int64(1)},
			"strings": []any{"a"}, "nested": []any{[]any{amqp.Table{}}},
			"bare": []any{amqp.Table{}}, "no-count": []any{without("count")}, "no-queue": []any{without("queue")},
			"no-keys": []any{without("routing-keys")}, "no-reason": []any{without("reason")},
			"no-exchange": []any{without("exchange")}, "no-time": []any{without("time")},
			"float-count": []any{entry("count", math.NaN())}, "int-queue": []any{entry("queue", int64(1))},
			"int-reason": []any{entry("reason", int64(1))}, "mixed-keys": []any{entry("routing-keys", []any{int64(1)})},
			"int-exchange": []any{entry("exchange", int64(1))}, "text-time": []any{entry("time", "yesterday")},
			"unknown-reason": []any{entry("reason", "bored")}, "twice": []any{entry(), entry("count", int64(2))},
		})
	}
	for name, death := range deaths {
		cases[name] = amqp.Table{"x-death": death}
	}
	return cases
}

// forgedCounts are counts in a header, as a publisher writes them.
var forgedCounts = map[string]amqp.Table{
	"delivery-text":   {"x-delivery-count": "zzz"},
	"delivery-huge":   {"x-delivery-count": int64(math.MaxInt64)},
	"attempt-decimal": {"x-delivery-count": "9999999999"},
	"attempt-text":    {"x-delivery-count": "-7"},
	"acquired":        {"x-acquired-count": "zzz"},
	"retry-text":      {"x-retry-count": "7 "},
	"retry-decimal":   {"x-retry-count": "9999999999"},
	"retry-negative":  {"x-retry-count": int64(-7)},
	"retry-nan":       {"x-retry-count": math.NaN()},
	"retry-huge":      {"x-retry-count": int64(math.MaxInt64)},
	"final-text":      {"x-final-retry-count": "7"},
	"final-huge":      {"x-final-retry-count": int64(99)},
	"final-table":     {"x-final-retry-count": amqp.Table{}},
	"final-forged":    {"x-final-reason": "forged", "x-final-status-code": "forged", "x-original-queue": "forged"},
	"first-death":     {"x-first-death-queue": int64(1), "x-first-death-reason": amqp.Table{}},
	"stamped":         {topology.HeaderRetryQueue: "other.queue"},
}

// largeHeaders: one x-death entry more, and no client could read the message any more, which would then kill the
// connection of every consumer that tries. So it is parked for its size while it still can be.
func largeHeaders(t *testing.T, r *shared) {
	reasons := map[int]string{100_000: "max_retries", 127_000: "headers_too_large", 130_600: "headers_too_large"}
	for size := range reasons {
		m := message(fmt.Sprint("large-", size))
		m.Headers = amqp.Table{"large": strings.Repeat("x", size), "small": "s"}
		r.app.On(m.MessageId, failing())
		r.put(t, m)
		m.MessageId += "-taken"
		r.put(t, m)
	}
	for size, reason := range reasons {
		id := fmt.Sprint("large-", size)
		r.acked(t, id+"-taken")
		if len(r.plan.Waits) == 0 {
			reason = "max_retries"
		}
		d := r.givenUp(t, id, reason)
		if d != nil && (d.Headers["x-final-reason"] != reason || d.Headers["small"] != "s") {
			t.Errorf("%s is parked for %v, header small is %v", id, d.Headers["x-final-reason"], d.Headers["small"])
		}
	}
	const good = "after-large"
	r.send(t, good)
	r.acked(t, good)
}
