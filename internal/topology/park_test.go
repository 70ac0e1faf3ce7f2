package topology

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

var death = []any{amqp.Table{
	"count": int64(10), "reason": "rejected", "queue": "wms.queue.wms-cincout", "exchange": "wms.main-exchange",
	"routing-keys": []any{"orders.new"}, "time": time.Unix(1700000000, 0),
}}

// whole is a message with every property, which has come to the service's queue before.
func whole(headers amqp.Table) *message.Message {
	return &message.Message{
		Body: []byte("body"), ContentType: "a/b", ContentEncoding: "gzip", MessageID: "id", CorrelationID: "c", ReplyTo: "r",
		Type: "t", AppID: "app", UserID: "guest", Expiration: "60000", Timestamp: time.Unix(1700000000, 0), Priority: 7,
		Queue: "wms.queue.wms-cincout", Exchange: "wms.main-exchange", RoutingKey: "orders.new", RetryCount: 2, MaxRetries: 10,
		Headers: headers,
	}
}

// wholePublishing is what whole is published as: without the user and the expiration, which would act on the broker.
func wholePublishing(headers amqp.Table) amqp.Publishing {
	return amqp.Publishing{
		Body: []byte("body"), ContentType: "a/b", ContentEncoding: "gzip", MessageId: "id", CorrelationId: "c", ReplyTo: "r",
		Type: "t", AppId: "app", Timestamp: time.Unix(1700000000, 0), Priority: 7, DeliveryMode: amqp.Persistent, Headers: headers,
	}
}

// TestParkedMessage is the contract of a parked message, types included.
func TestParkedMessage(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	m := whole(amqp.Table{
		"x-a": "1", "x-death": death, "x-first-death-queue": "wms.queue.wms-cincout", "x-retry-count": int32(2),
		"CC": []any{"elsewhere"}, "BCC": []any{"hidden"}, "x-delivery-count": int64(1), "x-acquired-count": int64(1),
		"x-final-reason": "park_status", "x-final-error": "an earlier park", "x-final-made-up": "forged", "x-original-queue": "forged",
		"x-original-user-id": "forged",
	})
	m.RetryCount = 10
	before := maps.Clone(m.Headers)
	v := message.Verdict{Action: message.Park, Reason: message.ReasonMaxRetries, Cause: message.Outcome{
		Status: 503, Detail: "no stock", At: time.Date(2026, 3, 1, 12, 30, 0, 5e6, time.FixedZone("", 3600)),
		Problem: &message.Problem{Type: "urn:stock", Title: "No stock", Detail: "none left"}, Answer: "none\n\tleft",
	}}
	got := p.Settlement(m, v).Publish
	want := &message.Publication{
		Kind: "park", Exchange: "", Key: "wms.dlq.wms-cincout",
		Msg: wholePublishing(amqp.Table{
			"x-a": "1", "x-death": death, "x-first-death-queue": "wms.queue.wms-cincout", "x-retry-count": int32(2),
			"x-original-queue": "wms.queue.wms-cincout", "x-original-exchange": "wms.main-exchange",
			"x-original-routing-key": "orders.new", "x-original-expiration": "60000", "x-original-user-id": "guest",
			"x-original-cc": []any{"elsewhere"}, "x-original-bcc": []any{"hidden"},
			"x-final-status-code": int32(503), "x-final-retry-count": int32(10), "x-final-reason": "max_retries",
			"x-final-detail": "no stock", "x-final-at": "2026-03-01T11:30:00.005Z",
			"x-final-problem-type": "urn:stock", "x-final-problem-title": "No stock", "x-final-problem-detail": "none left",
			"x-final-answer": "none\n\tleft",
		}),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(m.Headers, before) {
		t.Error("the message's own header table was changed")
	}
}

// TestParkedHeaders: a first delivery has no more than its own headers and ours; a broken x-death, which would take
// down the queue of the consumer that rejects the parked message next, is left out; what a retry by publish took off
// stays known.
func TestParkedHeaders(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	for name, c := range map[string]struct {
		change func(*message.Message)
		more   amqp.Table
	}{
		"first delivery": {nil, nil},
		"broken x-death": {func(m *message.Message) {
			m.Malformed, m.Headers["x-death"], m.Headers["x-last-death-queue"] = true, "zzz", int32(1)
		}, nil},
		"retried by publish": {func(m *message.Message) {
			m.Headers["x-original-expiration"], m.Headers["x-original-cc"] = "60000", []any{"elsewhere"}
		}, amqp.Table{"x-original-expiration": "60000", "x-original-cc": []any{"elsewhere"}}},
	} {
		want := amqp.Table{
			"x-a": "1", "x-original-queue": "wms.queue.wms-cincout", "x-original-exchange": "wms.main-exchange", "x-original-routing-key": "rk",
			"x-final-status-code": int32(503), "x-final-retry-count": int32(0), "x-final-reason": "park_status",
		}
		maps.Copy(want, c.more)
		h := p.Settlement(arrived(c.change), verdict(message.Park, message.ReasonParkStatus)).Publish.Msg.Headers
		if !reflect.DeepEqual(h, want) {
			t.Errorf("%s: got %v\nwant %v", name, h, want)
		}
	}
}

// TestDirectReplyTo: the broker refuses a copy that carries its name for direct reply-to, so every copy has it in a
// header.
func TestDirectReplyTo(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	m := arrived(func(m *message.Message) { m.ReplyTo = message.DirectReply })
	redriven, _ := p.RedrivePublication(&amqp.Delivery{ReplyTo: message.DirectReply}, Redriving{})
	restored, _ := p.RestorePublication(&amqp.Delivery{ReplyTo: message.DirectReply, Headers: amqp.Table{"x-a": "1"}})
	for name, pub := range map[string]*message.Publication{
		"parked":   p.Settlement(m, verdict(message.Park, message.ReasonParkStatus)).Publish,
		"retried":  p.WithoutReject().Settlement(m, verdict(message.Retry, message.ReasonServerError)).Publish,
		"redriven": redriven, "restored": restored,
	} {
		if pub.Msg.ReplyTo != "" || pub.Msg.Headers["x-original-reply-to"] != message.DirectReply {
			t.Errorf("%s: reply-to %q, headers %v", name, pub.Msg.ReplyTo, pub.Msg.Headers)
		}
	}
}

// TestRedriveOfAnotherConsumersMessage: a message that a consumer with a count of its own gave up goes on counting, or
// begins anew.
func TestRedriveOfAnotherConsumersMessage(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	for name, c := range map[string]struct {
		headers amqp.Table
		retries int
	}{
		"attempts as text":       {amqp.Table{"x-delivery-count": "4"}, 3},
		"retries as text":        {amqp.Table{"x-retry-count": "3"}, 3},
		"not a number":           {amqp.Table{"x-delivery-count": "four"}, 0},
		"the broker's own count": {amqp.Table{"x-delivery-count": int64(4)}, 0},
	} {
		for _, reset := range []bool{false, true} {
			pub, _ := p.RedrivePublication(&amqp.Delivery{Headers: c.headers}, Redriving{Reset: reset})
			want := c.retries
			if reset {
				want = 0
			}
			var again message.Message
			again.FromDelivery(&amqp.Delivery{Headers: pub.Msg.Headers}, p.Queue, 10)
			if from := pub.Msg.Headers["x-original-exchange"]; from != nil {
				t.Errorf("%s, reset %t: comes from %q, which is not known", name, reset, from)
			}
			if again.RetryCount != want || message.Deliveries(pub.Msg.Headers) != 0 {
				t.Errorf("%s, reset %t: %d retries, want %d: %v", name, reset, again.RetryCount, want, pub.Msg.Headers)
			}
		}
	}
}

// TestRedriveToAnotherQueue: the consumer of another queue gets a message that was never tried, without what only this
// service reads, and where the message came from.
func TestRedriveToAnotherQueue(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"}).clone()
	p.CountHeader = "x-try"
	d := &amqp.Delivery{MessageId: "m", Body: []byte("body"), Exchange: p.Park.Exchange, RoutingKey: p.Park.Key, Headers: amqp.Table{
		"tenant": "acme", "x-try": "4", "CC": []any{"x"}, "x-delivery-count": int64(2), "x-acquired-count": int64(2), "x-first-death-queue": "q",
		"x-death": []any{amqp.Table{
			"queue": p.Queue, "reason": "rejected", "count": int64(3), "exchange": "orders", "routing-keys": []any{"order.created"},
			"original-expiration": "60000",
		}},
		"x-retry-count": int32(3), "x-retry-queue": p.Queue, "x-original-queue": p.Queue,
		"x-final-reason": "max_retries", "x-final-retry-count": int32(3), "x-redriven-reply-to": "old", "x-redriven-count": int32(1),
	}}
	pub, fits := p.RedrivePublication(d, Redriving{By: "operator", At: time.Unix(1700000000, 0), Count: 1, To: "audit"})
	if !fits || pub.Exchange != DefaultExchange && pub.Exchange != "" || pub.Key != "audit" || string(pub.Msg.Body) != "body" || pub.Msg.MessageId != "m" {
		t.Errorf("%+v", pub)
	}
	want := amqp.Table{
		"tenant": "acme", "x-original-exchange": "orders", "x-original-routing-key": "order.created", "x-original-cc": `["x"]`,
		"x-original-expiration": "60000", "x-redriven-count": "2", // all of it text
		"x-redriven-by": "operator", "x-redriven-from": p.Park.Queue, "x-redriven-at": "2023-11-14T22:13:20.000Z",
	}
	if !reflect.DeepEqual(pub.Msg.Headers, want) {
		t.Errorf("got %v\nwant %v", pub.Msg.Headers, want)
	}
	d.Headers["x-original-cc"] = []any{"old"}
	plain, _ := p.RedrivePublication(d, Redriving{By: "operator", To: "audit", Plain: true})
	if want := (amqp.Table{"tenant": "acme"}); plain.Key != "audit" || !reflect.DeepEqual(plain.Msg.Headers, want) {
		t.Errorf("plain: %v", plain.Msg.Headers)
	}
}

// TestRestored: what was taken out of the dead-letter queue returns as it was, but for what would act on the broker.
func TestRestored(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	death := []any{amqp.Table{"queue": p.Queue}}
	pub, _ := p.RestorePublication(&amqp.Delivery{Expiration: "60000", Headers: amqp.Table{
		"tenant": "acme", "x-death": death, "x-delivery-count": int64(2), "CC": []any{"x"},
	}})
	want := amqp.Table{"tenant": "acme", "x-death": death, "x-original-cc": []any{"x"}}
	if pub.Msg.Expiration != "60000" || !reflect.DeepEqual(pub.Msg.Headers, want) {
		t.Errorf("expiration %q, headers %v, want %v", pub.Msg.Expiration, pub.Msg.Headers, want)
	}
}

func TestHowTheAttemptEnded(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		o      message.Outcome
		status any
		text   any
	}{
		{"answered", message.Outcome{Status: 500, Err: errRefused}, int32(500), nil},
		{"no attempt at all", message.Outcome{}, nil, nil},
		{"refused", message.Outcome{Failure: message.FailureRefused, Err: errRefused}, nil, "refused: dial tcp 127.0.0.1:8080: connect: connection refused"},
		{"class alone", message.Outcome{Failure: message.FailureTimeout}, nil, "timeout"},
		{"class not said twice", message.Outcome{Failure: message.FailureReset, Err: errors.New("reset by peer")}, nil, "reset by peer"},
		{"too large", message.Outcome{Failure: message.FailureTooLarge}, nil, "body too large"},
		{"too large with sizes", message.Outcome{Failure: message.FailureTooLarge, Err: errors.New("17 bytes, at most 16")}, nil, "body too large: 17 bytes, at most 16"},
		{"a status beside a failure means nothing", message.Outcome{Status: 200, Failure: message.FailureMalformed}, nil, "malformed"},
		{"line ends", message.Outcome{Failure: message.FailureReset, Err: errors.New("a\r\nb\x1b[31m")}, nil, "reset: a  b [31m"},
		{"not UTF-8", message.Outcome{Failure: message.FailureReset, Err: errors.New("\xff")}, nil, "reset: \uFFFD"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := amqp.Table{}
			describe(h, &c.o)
			if h["x-final-status-code"] != c.status || h["x-final-error"] != c.text {
				t.Errorf("%v", h)
			}
		})
	}
	h := amqp.Table{}
	describe(h, &message.Outcome{Failure: message.FailureReset, Err: errors.New(strings.Repeat("é", 1000))})
	if s, _ := h["x-final-error"].(string); len(s) > 1024 || len(s) < 1020 || !utf8.ValidString(s) {
		t.Errorf("%d bytes, valid %t", len(s), utf8.ValidString(s))
	}
}
