// Package message holds the values that travel down the line from a delivery to its settlement: what arrived
// (Message), what the app did with it (Outcome) and what was decided (Verdict). It does no I/O, reads no
// configuration and decides nothing.
package message

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Message is one delivery as the app will see it. The body and the header table are the broker client's own memory:
// they are read, never written.
type Message struct {
	Body    []byte
	Headers amqp.Table

	ContentType     string
	ContentEncoding string
	MessageID       string
	CorrelationID   string
	ReplyTo         string
	Type            string
	AppID           string
	UserID          string
	Expiration      string    // milliseconds as decimal text, as AMQP carries it
	Timestamp       time.Time // zero when the property is absent
	Priority        uint8     // 0 also when the property is absent: the client library does not tell the two apart

	Queue       string // the queue this delivery came from
	Exchange    string // of this delivery
	RoutingKey  string // of this delivery
	Redelivered bool

	// OriginalExchange and OriginalRoutingKey say where a message that came back from a retry was first published.
	// HasOriginal is false for a first delivery.
	OriginalExchange   string
	OriginalRoutingKey string
	HasOriginal        bool

	RetryCount int  // failed attempts before this one; 0 on the first delivery
	MaxRetries int  // of the topology plan
	Malformed  bool // x-death is forged or broken: such a message must never be rejected, it takes a 3.10 queue down

	// Looped: x-death says that the message once left this queue by expiry, length or delivery limit. Once rejected, a
	// broker of the 3.x line takes its way back for an automatic cycle and drops it: it must never be rejected either.
	Looped bool

	// Moved: x-death says that the message was rejected here more often than it came back from waiting. Somebody moved
	// it by hand, or made its history up: from RabbitMQ 4.0 the next reject would begin to count at one again.
	Moved bool

	// Crashes of app or sidecar while they had the message, as far as somebody counts them. It differs from what the
	// headers say when there has been another one since.
	Crashes int

	// Trace is what goes to the app as traceparent, tracestate and baggage; an empty string is not sent.
	Trace TraceContext
}

// TraceContext is a W3C trace context in its wire form.
type TraceContext struct {
	Traceparent, Tracestate, Baggage string
}

// LastAttempt reports whether a failure of this attempt would park the message.
func (m *Message) LastAttempt() bool { return m.RetryCount >= m.MaxRetries }

// NewCrash reports whether the message was in a crash that its headers do not know of.
func (m *Message) NewCrash() bool { return m.Crashes > 0 && m.Crashes != Crashes(m.Headers) }

// FromDelivery copies a delivery's properties into m, replacing all of m. The retry count is read for queue by the
// formula of RetryCount.
func (m *Message) FromDelivery(d *amqp.Delivery, queue string, maxRetries int) {
	*m = Message{
		Body: d.Body, Headers: d.Headers,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, MessageID: d.MessageId,
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Type: d.Type, AppID: d.AppId, UserID: d.UserId,
		Expiration: d.Expiration, Timestamp: d.Timestamp, Priority: d.Priority,
		Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered,
		MaxRetries: maxRetries,
	}
	if len(d.Headers) == 0 {
		return
	}
	h := readHistory(d.Headers, queue)
	m.RetryCount, m.Malformed, m.Looped, m.Moved = h.retries, h.malformed, h.looped, h.moved
	m.OriginalExchange, m.OriginalRoutingKey, m.HasOriginal = h.exchange, h.key, h.returned
	if h.exchange == "" && h.key == "" && d.Exchange != "" { // a history without an origin: this is the first we know of
		m.OriginalExchange, m.OriginalRoutingKey = d.Exchange, d.RoutingKey
	}
}
