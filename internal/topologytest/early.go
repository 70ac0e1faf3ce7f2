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
	for _, id := range ids {
		r.acked(t, id)
		list := r.app.Seen(id)
		if len(list) != earlyTimes+1 {
			t.Errorf("%s was received %d times, want %d", id, len(list), earlyTimes+1)
		}
		for i := range list {
			if list[i].Number("Amqp-Retry-Count") != 0 || list[i].Number("Amqp-Delivery-Attempt") != 1 {
				t.Errorf("%s, receipt %d: Amqp-Retry-Count %q", id, i, list[i].Header.Get("Amqp-Retry-Count"))
			}
			if i > 0 && list[i].At.Sub(list[i-1].At) < requeueMin {
				t.Errorf("%s: receipt %d came %v after the one before", id, i, list[i].At.Sub(list[i-1].At))
			}
		}
	}
}

const retryAfterAsked = time.Second // the shortest there is: the header counts in seconds

// retryAfter: the message does not return before the time that the app asked for. With tiers it waits in the
// smallest that covers it; with one retry queue it waits as always, and the sidecar takes nothing until the time is
// over.
func retryAfter(t *testing.T, r *shared) {
	const id = "retry-after"
	r.app.On(id, status(http.StatusServiceUnavailable, "Retry-After: 1"),
		status(http.StatusConflict, "Amqp-Disposition: park"))
	r.send(t, id)
	d := r.givenUp(t, id, "disposition")
	list := r.app.Seen(id)
	if len(list) != 2 {
		t.Fatalf("%d attempts, want 2", len(list))
	}
	if gap := list[1].At.Sub(list[0].At); gap < retryAfterAsked {
		t.Errorf("returned after %v", gap)
	}
	if list[1].Number("Amqp-Retry-Count") != 1 {
		t.Errorf("Amqp-Retry-Count %q", list[1].Header.Get("Amqp-Retry-Count"))
	}
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
	// The broker writes down where the message expired.
	var waited []string
	deaths, _ := d.Headers["x-death"].([]any)
	for _, e := range deaths {
		if entry, _ := e.(amqp.Table); entry["reason"] == "expired" {
			waited = append(waited, fmt.Sprint(entry["queue"]))
		}
	}
	if !slices.Equal(waited, want) {
		t.Errorf("waited in %q, want %q", waited, want)
	}
}

// senderProperties: what would make the broker refuse a copy, send it elsewhere too or throw it away is taken off
// before the message is published again, and kept as text.
func senderProperties(t *testing.T, r *shared) {
	aside := brokertest.Queue(t, r.url, r.plan.Queue+".aside", nil)
	user, err := url.Parse(r.url)
	if err != nil {
		t.Fatal("the broker's URL cannot be parsed")
	}
	again := map[string]apptest.Reply{"properties": failing(),
		"properties-at-once": status(http.StatusConflict, "Amqp-Disposition: park")}
	for id, script := range again {
		r.app.On(id, script)
		m := message(id)
		m.UserId, m.Expiration = user.User.Username(), "3600000"
		m.Headers = amqp.Table{"CC": []any{aside}, "BCC": []any{aside}}
		r.put(t, m)
	}
	for id := range again {
		reason, attempts := "disposition", 1
		if id == "properties" {
			reason, attempts = "max_retries", r.plan.MaxRetries+1
		}
		d := r.givenUp(t, id, reason)
		if n := len(r.app.Seen(id)); n != attempts {
			t.Errorf("%s: %d attempts, want %d", id, n, attempts)
		}
		if d != nil {
			takenOff(t, d, user.User.Username(), aside)
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
