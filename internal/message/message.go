// Package message holds the values between a delivery and its settlement: the delivery (Message), the app's answer
// (Outcome), the decision (Verdict) and a message to publish (Publication). It does not do I/O, read configuration or
// decide.
package message

import (
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

// Message is one delivery as the app will see it. Body and headers belong to the broker client: never write to them.
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
	Priority        uint8     // 0 also when absent: the client library does not distinguish the two

	Queue       string // the queue this delivery came from
	Redelivered bool

	// Exchange and RoutingKey are those of the first publish, by the message's history; without one they are those of
	// this delivery. See topology.Plan.Read, which does not believe the history of a message that was just published.
	Exchange   string
	RoutingKey string

	RetryCount int  // failed attempts before this one; 0 on the first delivery
	MaxRetries int  // of the topology plan
	Malformed  bool // x-death is forged or broken: never reject such a message, it ends the process of a 3.10 queue

	// Looped means that the message once left this queue by expiry, length or delivery limit, by its x-death. It must
	// never be rejected: a broker of the 3.x line would drop it as an automatic cycle.
	Looped bool

	// Untrusted means that the broker would not go on counting from this x-death, so that every retry has to be a
	// publish. The message was rejected here more often than it returned from a delay: it was moved manually, or its
	// history is forged, and from RabbitMQ 4.0 the next reject would start to count at one again. Or topology.Plan.Read
	// has found that the history is that of another message.
	Untrusted bool

	Lost <-chan struct{} // closed when the delivery cannot be settled any more; may be nil

	// Trace becomes traceparent, tracestate and baggage in the request; an empty string is not sent.
	Trace TraceContext
}

// TraceContext is a W3C trace context in its wire form.
type TraceContext struct {
	Traceparent, Tracestate, Baggage string
}

// LastAttempt reports whether a failure of this attempt would park the message.
func (m *Message) LastAttempt() bool { return m.RetryCount >= m.MaxRetries }

// FromDelivery copies a delivery's properties into m, replacing all of m, and reads its history in queue.
func (m *Message) FromDelivery(d *amqp.Delivery, queue string, maxRetries int) {
	*m = Message{
		Body: d.Body, Headers: d.Headers,
		ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, MessageID: d.MessageId,
		CorrelationID: d.CorrelationId, ReplyTo: d.ReplyTo, Type: d.Type, AppID: d.AppId, UserID: d.UserId,
		Expiration: d.Expiration, Timestamp: d.Timestamp, Priority: d.Priority,
		Queue: queue, Exchange: d.Exchange, RoutingKey: d.RoutingKey, Redelivered: d.Redelivered,
		MaxRetries: maxRetries,
	}
	if len(d.Headers) > 0 {
		m.readHistory()
	}
}

const maxKey = 1 << 10 // bytes of a key: of a longer text only the beginning counts

// Key returns the key by which a message is ordered, "" without one: by is "routing-key", "correlation-id", "queue"
// (the same key for all messages) or "header:" and a name. It does not refer to the memory of the headers.
func (m *Message) Key(by string) string {
	switch by {
	case "routing-key":
		return strings.Clone(m.RoutingKey)
	case "correlation-id":
		return m.CorrelationID
	case "queue":
		return by
	}
	text, _ := amqpvalue.AppendText(nil, m.Headers[strings.TrimPrefix(by, "header:")], maxKey)
	return string(text[:min(len(text), maxKey)])
}
