package topologytest

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

const earlyTimes = 22 // beyond every delivery limit that a broker has by itself: 20

// tooEarly: a 425 is not counted, however often it comes. That also holds where there are no retries.
func tooEarly(t *testing.T, r *shared) {
	ids := named("early", 2)
	for _, id := range ids {
		script := slices.Repeat([]apptest.Reply{status(http.StatusTooEarly)}, earlyTimes)
		r.app.On(id, append(script, status(http.StatusOK))...)
	}
	r.send(t, ids...)
	r.acked(t, ids...)
	for _, id := range ids {
		list := r.receipts(t, id, make([]int, earlyTimes+1)...)
		waited(t, list, func(int) time.Duration { return requeueMin })
	}
}

const retryAfterAsked = time.Second // the shortest there is: the header counts in seconds

// retryAfter: the message does not return before the time that the app asked for. With tiers it waits in the
// smallest that covers it; with one retry queue it waits as always, and the sidecar takes nothing until the time is
// over.
func retryAfter(t *testing.T, r *shared) {
	const id = "retry-after"
	r.app.On(id, status(http.StatusServiceUnavailable, "Retry-After: 1"), parking())
	r.send(t, id)
	d := r.givenUp(t, id, "disposition")
	waited(t, r.receipts(t, id, 0, 1), func(int) time.Duration { return retryAfterAsked })
	if d == nil {
		return
	}
	want := []string{r.plan.Waits[0].Queue}
	if r.plan.DelaysItself() {
		want = nil // it has not left its queue
	}
	if r.plan.Tiered {
		for _, w := range slices.Backward(r.plan.Waits) {
			if w.Delay >= retryAfterAsked {
				want = []string{w.Queue}
			}
		}
	}
	if got := expiredIn(d); !slices.Equal(got, want) {
		t.Errorf("waited in %q, want %q", got, want)
	}
}

// expiredIn lists the queues in which a message has waited, the last one first: the broker writes down where it
// expired.
func expiredIn(d *amqp.Delivery) (queues []string) {
	deaths, _ := d.Headers["x-death"].([]any)
	for _, e := range deaths {
		if entry, _ := e.(amqp.Table); entry["reason"] == "expired" {
			queues = append(queues, fmt.Sprint(entry["queue"]))
		}
	}
	return queues
}

// senderProperties: what would make the broker refuse a copy, send it elsewhere too or throw it away is taken off
// before the message is published again, and kept as text.
func senderProperties(t *testing.T, r *shared) {
	aside := brokertest.Queue(t, r.url, r.plan.Queue+".aside", nil)
	user := must.Get(url.Parse(r.url))(t).User.Username()
	again := map[string]apptest.Reply{"properties": failing(), "properties-at-once": parking()}
	for id, script := range again {
		r.app.On(id, script)
		m := message(id)
		m.UserId, m.Expiration = user, "3600000"
		m.Headers = amqp.Table{"CC": []any{aside}, "BCC": []any{aside}}
		r.put(t, m)
	}
	for id := range again {
		reason, attempts := "disposition", 1
		if id == "properties" {
			reason, attempts = "max_retries", r.plan.MaxRetries+1
		}
		d := r.givenUp(t, id, reason)
		r.receipts(t, id, counting(attempts-1)...)
		if d != nil {
			takenOff(t, d, user, aside)
		}
	}
	brokertest.WaitReady(t, r.url, aside, len(again)) // CC and BCC name one queue, which gets one copy: the publisher's
}

func takenOff(t *testing.T, d *amqp.Delivery, user, aside string) {
	t.Helper()
	if d.UserId != "" || d.Expiration != "" || d.Headers["CC"] != nil || d.Headers["BCC"] != nil {
		t.Errorf("%s: user id %q, expiration %q, headers %v", d.MessageId, d.UserId, d.Expiration, d.Headers)
	}
	if d.Headers["x-original-user-id"] != user || d.Headers["x-original-expiration"] != "3600000" {
		t.Errorf("%s: x-original-user-id %v, x-original-expiration %v", d.MessageId, d.Headers["x-original-user-id"],
			d.Headers["x-original-expiration"])
	}
	// There is no x-original-bcc: the broker itself takes BCC off before a consumer receives the message.
	if !strings.Contains(fmt.Sprint(d.Headers["x-original-cc"]), aside) {
		t.Errorf("%s: x-original-cc %v", d.MessageId, d.Headers["x-original-cc"])
	}
}
