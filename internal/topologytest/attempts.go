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

// success: what the app takes it sees once, as it was published, and as a first attempt.
func success(t *testing.T, r *shared) {
	ids := named("success", 5)
	exchange, key, _ := front(r.plan)
	r.send(t, ids...)
	for _, id := range ids {
		r.acked(t, id)
		list := r.app.Seen(id)
		if len(list) != 1 {
			t.Errorf("%s was received %d times", id, len(list))
		}
		h := list[0].Header
		if string(list[0].Body) != "body of "+id || h.Get("Amqp-Queue") != r.plan.Queue ||
			h.Get("Amqp-Exchange") != exchange || h.Get("Amqp-Routing-Key") != key {
			t.Errorf("%s is %q from %q, exchange %q, key %q", id, list[0].Body, h.Get("Amqp-Queue"), h.Get("Amqp-Exchange"),
				h.Get("Amqp-Routing-Key"))
		}
		counted(t, r.rig, id, list)
	}
}

// counted compares what the app received on each receipt of a message that fails every time, from its first attempt on.
func counted(t *testing.T, r *rig, id string, list []*apptest.Request) {
	t.Helper()
	exchange, key, _ := front(r.plan)
	for i := range list {
		h := list[i].Header
		if list[i].Number("Amqp-Retry-Count") != i || list[i].Number("Amqp-Delivery-Attempt") != i+1 ||
			list[i].Number("Amqp-Max-Retries") != r.plan.MaxRetries {
			t.Errorf("%s, receipt %d: Amqp-Retry-Count %q, Amqp-Delivery-Attempt %q, Amqp-Max-Retries %q", id, i,
				h.Get("Amqp-Retry-Count"), h.Get("Amqp-Delivery-Attempt"), h.Get("Amqp-Max-Retries"))
		}
		if last := h.Get("Amqp-Last-Attempt") == "true"; last != (i == r.plan.MaxRetries) {
			t.Errorf("%s, receipt %d: Amqp-Last-Attempt %q", id, i, h.Get("Amqp-Last-Attempt"))
		}
		if h.Get("Amqp-Exchange") != exchange || h.Get("Amqp-Routing-Key") != key {
			t.Errorf("%s, receipt %d: Amqp-Exchange %q, Amqp-Routing-Key %q, want %q and %q", id, i,
				h.Get("Amqp-Exchange"), h.Get("Amqp-Routing-Key"), exchange, key)
		}
		if i == 0 {
			continue
		}
		for _, own := range []string{"Exchange", "Routing-Key", "Queue"} {
			if got, found := h["Amqp-Header-X-Original-"+own]; found {
				t.Errorf("%s, receipt %d: Amqp-Header-X-Original-%s %q", id, i, own, got)
			}
		}
		if gap := list[i].At.Sub(list[i-1].At); gap < tier(r.plan, i-1) {
			t.Errorf("%s: receipt %d came %v after the one before, its tier holds for %v", id, i, gap, tier(r.plan, i-1))
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
	list := r.app.Seen(m.MessageId)
	if len(list) != r.plan.MaxRetries+1 {
		t.Errorf("%d attempts, want %d", len(list), r.plan.MaxRetries+1)
	}
	counted(t, r.rig, m.MessageId, list)
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

// noAnswer: without an answer there is no status to write down, but what happened instead.
func noAnswer(t *testing.T, r *shared) {
	const id = "no-answer"
	r.app.On(id, apptest.Reset)
	r.send(t, id)
	d := r.givenUp(t, id, "max_retries")
	if n := len(r.app.Seen(id)); n != r.plan.MaxRetries+1 {
		t.Errorf("%d attempts, want %d", n, r.plan.MaxRetries+1)
	}
	if d == nil {
		return
	}
	r.parkedWith(t, d, amqp.Table{
		//nolint:gosec // a few
		"x-final-status-code": nil, "x-final-reason": "max_retries", "x-final-retry-count": int32(r.plan.MaxRetries),
	})
	if text, _ := d.Headers["x-final-error"].(string); len(text) < 5 || text[:5] != "reset" {
		t.Errorf("x-final-error is %q", d.Headers["x-final-error"])
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
