package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const ttl = 300 * time.Millisecond // SIDECAR_RETRY_DELAY of every scene

// checkAttempts compares what the app received at each receipt with the contract, for a message that failed every time.
func checkAttempts(t *testing.T, sc *scene, list []*delivery, maxRetries int) {
	t.Helper()
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
			if gap := d.at.Sub(list[i-1].at); gap < ttl {
				t.Errorf("attempt %d came %v after the one before, the retry queue holds for %v", i+1, gap, ttl)
			}
		}
		for k, v := range want {
			if got := d.header.Get(k); got != v {
				t.Errorf("attempt %d: %s is %q, want %q", i+1, k, got, v)
			}
		}
		if string(d.body) != string(list[0].body) || d.header.Get("Content-Type") != list[0].header.Get("Content-Type") {
			t.Errorf("attempt %d: body or content type differ from the first", i+1)
		}
	}
}

// TestElevenAttemptsThenParked is 004's main promise.
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
	list := sc.app.seen("bad")
	if len(list) != 11 {
		t.Fatalf("%d attempts, want 11", len(list))
	}
	checkAttempts(t, sc, list, 10)
	checkParked(t, sc, d, m)
	if rejected := deathCount(d.Headers, sc.queue(), "rejected"); rejected != 10 {
		t.Errorf("x-death counts %d rejections, want 10: %v", rejected, d.Headers["x-death"])
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
	checkFinalAt(t, d.Headers["x-final-at"])
	if string(d.Body) != string(m.Body) || d.MessageId != m.MessageId || d.ContentType != m.ContentType || d.CorrelationId != m.CorrelationId ||
		d.Type != m.Type || d.Priority != m.Priority || d.AppId != m.AppId {
		t.Errorf("body or properties of the parked message changed: %+v", d)
	}
	if d.DeliveryMode != amqp.Persistent {
		t.Errorf("delivery mode %d, want 2", d.DeliveryMode)
	}
}

func checkFinalAt(t *testing.T, v any) {
	t.Helper()
	at, ok := v.(time.Time)
	if s, isText := v.(string); isText {
		parsed, err := time.Parse(time.RFC3339, s)
		at, ok = parsed, err == nil
	}
	if !ok || time.Since(at) > time.Hour || time.Until(at) > time.Minute {
		t.Errorf("x-final-at is %#v, want the time of parking", v)
	}
}

// deathCount reads the count of one entry of x-death, -1 when there is none.
func deathCount(h amqp.Table, queue, reason string) int {
	list, _ := h["x-death"].([]any)
	for _, e := range list {
		if t, ok := e.(amqp.Table); ok && t["queue"] == queue && t["reason"] == reason {
			return asInt(t["count"])
		}
	}
	return -1
}

func TestSuccessOnTheLastAttempt(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "2").seed()
	sc.app.on("late", status(500), status(409), status(200))
	sc.send("late")
	s := sc.run()
	checkAttempts(t, sc, sc.app.await("late", 3), 2)
	eventually(t, "the ack", func() bool { return slices.Equal(s.log.outcomes("late"), []string{"retry", "retry", "ack"}) })
	sc.settledAll(s, 0)
}

func TestNoRetriesAtAll(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "0", "REQUEUE_DELAY_MIN", "250ms", "REQUEUE_DELAY_MAX", "300ms").seed()
	sc.app.on("bad", status(503))
	sc.app.on("early", status(425), status(425), status(200)) // which is not a retry: it is requeued all the same
	sc.send("bad", "early", "good")
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	if d.MessageId != "bad" || asInt(d.Headers["x-final-retry-count"]) != 0 || d.Headers["x-final-reason"] != "max_retries" {
		t.Errorf("%s parked with %v", d.MessageId, d.Headers)
	}
	sc.app.await("good", 1)
	checkAttempts(t, sc, sc.app.await("bad", 1), 0)
	for _, r := range sc.app.await("early", 3) {
		if r.header.Get("Amqp-Retry-Count") != "0" {
			t.Errorf("a requeue was counted: %v", r.header)
		}
	}
	sc.settledAll(s, 0)
}

// TestFinalErrorOnlyWithoutAnAnswer.
func TestFinalErrorOnlyWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	never := make(chan struct{})
	sc := newScene(t).with("MAX_RETRIES", "0", "APP_TIMEOUT", "500ms").seed()
	sc.app.on("hang", answer{gate: never})
	t.Cleanup(func() { close(never) })
	sc.send("hang")
	s := sc.run()
	d := sc.take(sc.dlq(), 1)[0]
	text, _ := d.Headers["x-final-error"].(string)
	if text == "" || len(text) > 1024 || d.Headers["x-final-status-code"] != nil {
		t.Errorf("x-final-error %q, x-final-status-code %v", d.Headers["x-final-error"], d.Headers["x-final-status-code"])
	}
	if !strings.Contains(strings.ToLower(text), "time") {
		t.Errorf("x-final-error %q does not speak of time", text)
	}
	sc.settledAll(s, 0)
}

// TestOnlyTheFailedServiceSeesTheRetry: two services on one exchange.
func TestOnlyTheFailedServiceSeesTheRetry(t *testing.T) {
	t.Parallel()
	a, b := newScene(t), newScene(t)
	b.service, b.prefix = a.prefix+"-other", a.prefix
	b.env["SIDECAR_SERVICE"] = b.service
	a.app.on("m", status(500), status(500), status(200))
	sa, sb := a.run(), b.run()
	a.send("m")
	a.app.await("m", 3)
	b.app.await("m", 1)
	a.settledAll(sa, 0)
	b.settledAll(sb, 0)
	if n := len(b.app.seen("m")); n != 1 {
		t.Errorf("the other service received it %d times, want once", n)
	}
}

// TestRetriedMessageCarriesNothingOfOurs: a retry by reject, counted by the broker alone: nothing of ours is on the message.
func TestRetriedMessageCarriesNothingOfOurs(t *testing.T) {
	t.Parallel()
	sc := newScene(t).with("MAX_RETRIES", "1").seed()
	gate := make(chan struct{})
	sc.app.on("m", status(http.StatusConflict), answer{status: 200, gate: gate})
	sc.send("m")
	s := sc.run()
	sc.app.await("m", 1)
	s.awaitOutcome("m", "retry")
	s.kill() // the message is in the retry queue or back in the service queue: check it there
	close(gate)
	eventually(t, "the message back in the service queue", func() bool { return sc.ready(sc.queue()) == 1 })
	d := sc.take(sc.queue(), 1)[0]
	if deathCount(d.Headers, sc.queue(), "rejected") != 1 || deathCount(d.Headers, sc.retryQueue(), "expired") != 1 {
		t.Errorf("x-death is %v", d.Headers["x-death"])
	}
	for k := range d.Headers {
		if strings.HasPrefix(k, "x-retry") || strings.HasPrefix(k, "x-final") || strings.HasPrefix(k, "x-original") {
			t.Errorf("a rejected message got header %q", k)
		}
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
