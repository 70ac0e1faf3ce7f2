package topologytest

import (
	"maps"
	"net/http"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// attempts compares what the app received on each of n receipts of a message that fails every time, from its first
// attempt on.
func (r *rig) attempts(t *testing.T, id string, n int) {
	t.Helper()
	exchange, key, _ := front(r.plan)
	list := r.receipts(t, id, counting(n-1)...)
	for i := range list {
		h := list[i].Header
		last := h.Get("Amqp-Last-Attempt") == "true"
		if list[i].Number("Amqp-Max-Retries") != r.plan.MaxRetries || last != (i == r.plan.MaxRetries) {
			t.Errorf("%s, receipt %d: Amqp-Max-Retries %q, Amqp-Last-Attempt %q", id, i, h.Get("Amqp-Max-Retries"),
				h.Get("Amqp-Last-Attempt"))
		}
		if h.Get("Amqp-Exchange") != exchange || h.Get("Amqp-Routing-Key") != key {
			t.Errorf("%s, receipt %d: Amqp-Exchange %q, Amqp-Routing-Key %q, want %q and %q", id, i,
				h.Get("Amqp-Exchange"), h.Get("Amqp-Routing-Key"), exchange, key)
		}
		for _, own := range []string{"Exchange", "Routing-Key", "Queue"} {
			if got, found := h["Amqp-Header-X-Original-"+own]; found && i > 0 {
				t.Errorf("%s, receipt %d: Amqp-Header-X-Original-%s %q", id, i, own, got)
			}
		}
	}
	waited(t, list, r.tier)
}

// waited compares the time between receipts with the delay after each failed attempt, counted from 0.
func waited(t testing.TB, list []*apptest.Request, delay func(failed int) time.Duration) {
	t.Helper()
	for i := 1; i < len(list); i++ {
		if gap := list[i].At.Sub(list[i-1].At); gap < delay(i-1) {
			t.Errorf("%s: receipt %d came %v after the one before, want at least %v", list[i].Header.Get("Amqp-Message-Id"), i,
				gap, delay(i-1))
		}
	}
}

// everyAttempt: a message that always fails is tried once more than it has retries, waits at least its tier every time,
// and then lies in the dead-letter queue with everything that is known about it.
func everyAttempt(t *testing.T, r *shared) {
	m := full("always")
	r.app.On(m.MessageId, problem(http.StatusUnprocessableEntity,
		`{"type":"urn:gone","title":"No customer","detail":"customer 7"}`))
	exchange, key, headers := front(r.plan)
	maps.Copy(m.Headers, headers)
	brokertest.Publish(t, brokertest.Channel(t, r.url), exchange, key, m)
	d := r.givenUp(t, m.MessageId, "max_retries")
	r.attempts(t, m.MessageId, r.plan.MaxRetries+1)
	if d == nil {
		return
	}
	r.parkedWith(t, d, amqp.Table{
		"x-final-status-code": int32(http.StatusUnprocessableEntity), "x-final-reason": "max_retries",
		"x-final-detail":       "no such customer",
		"x-final-problem-type": "urn:gone", "x-final-problem-title": "No customer", "x-final-problem-detail": "customer 7",
		"x-final-error": nil, "x-final-retry-count": int32(r.plan.MaxRetries), //nolint:gosec // a few
	})
	asSent(t, d, &m)
}

// straight: a message that was published to the service's queue by its name says so on every attempt.
func straight(t *testing.T, r *shared) {
	const id = "straight"
	r.app.On(id, failing())
	r.put(t, message(id))
	d := r.givenUp(t, id, "max_retries")
	for i, one := range r.app.Seen(id) {
		if h := one.Header; h.Get("Amqp-Exchange") != "" || h.Get("Amqp-Routing-Key") != r.plan.Queue {
			t.Errorf("receipt %d: Amqp-Exchange %q, Amqp-Routing-Key %q", i, h.Get("Amqp-Exchange"), h.Get("Amqp-Routing-Key"))
		}
	}
	if d != nil && (d.Headers["x-original-exchange"] != "" || d.Headers["x-original-routing-key"] != r.plan.Queue) {
		t.Errorf("parked with %v", d.Headers)
	}
}

// full is a message that uses every property and every common type of header.
func full(id string) amqp.Publishing {
	m := message(id)
	m.ContentType, m.ContentEncoding = "application/json", "identity"
	m.CorrelationId, m.ReplyTo, m.Type, m.AppId = "correlation", "answers", "order.created", "shop"
	m.Priority, m.Timestamp = 5, time.Unix(1_700_000_000, 0).UTC()
	m.Headers = amqp.Table{
		"tenant": "acme", "number": int64(7), "flag": true, "bytes": []byte{1, 2}, "at": time.Unix(1_700_000_001, 0).UTC(),
		"list": []any{"a", int32(1)}, "table": amqp.Table{"k": "v"},
	}
	return m
}

// asSent: body, properties and the publisher's headers are as they were published.
func asSent(t *testing.T, d *amqp.Delivery, m *amqp.Publishing) {
	t.Helper()
	got := amqp.Publishing{
		MessageId: d.MessageId, Body: d.Body, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding,
		CorrelationId: d.CorrelationId,
		ReplyTo:       d.ReplyTo, Type: d.Type, AppId: d.AppId, Priority: d.Priority, Timestamp: d.Timestamp.UTC(),
		DeliveryMode: d.DeliveryMode,
		Headers:      amqp.Table{},
	}
	for k := range m.Headers {
		got.Headers[k] = d.Headers[k]
		if at, ok := got.Headers[k].(time.Time); ok {
			got.Headers[k] = at.UTC()
		}
	}
	if !reflect.DeepEqual(got, *m) {
		t.Errorf("parked as %+v, published as %+v", got, *m)
	}
}

// parkedWith checks the headers of a parked message: those of every one, and those wanted, of which nil must not be
// there.
func (r *rig) parkedWith(t testing.TB, d *amqp.Delivery, wanted amqp.Table) {
	t.Helper()
	exchange, key, _ := front(r.plan)
	wanted["x-original-queue"], wanted["x-original-exchange"], wanted["x-original-routing-key"] = r.plan.Queue, exchange,
		key
	wanted["x-retry-queue"], wanted["CC"], wanted["BCC"] = nil, nil, nil
	for k, want := range wanted {
		if got := d.Headers[k]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s is %v (%T), want %v", d.MessageId, k, got, got, want)
		}
	}
	at, _ := d.Headers["x-final-at"].(string)
	if _, err := time.Parse(time.RFC3339, at); err != nil {
		t.Errorf("%s: x-final-at is %q", d.MessageId, at)
	}
	if d.DeliveryMode != amqp.Persistent || d.Expiration != "" || d.UserId != "" {
		t.Errorf("%s: mode %d, expiration %q, user id %q", d.MessageId, d.DeliveryMode, d.Expiration, d.UserId)
	}
	// What waited has been in a queue that it left by expiry, and the broker has written that down.
	if _, ok := d.Headers["x-death"].([]any); ok != (len(r.plan.Waits) > 0 && !r.plan.DelaysItself() &&
		d.Headers["x-final-retry-count"] != int32(0)) {
		t.Errorf("%s: x-death is %v", d.MessageId, d.Headers["x-death"])
	}
}
