// Package message holds the values between a delivery and its settlement: the delivery (Message), the app's answer
// (Outcome), the decision (Verdict) and a message to publish (Publication). It does not do I/O, read configuration or
// decide.
package message

import (
	"math"
	"slices"
	"strconv"
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

// Names of the headers with a message's history. The broker writes x-death, the sidecar the others. Both
// write x-delivery-count, see Deliveries and countPublished.
const (
	HeaderDeath              = "x-death"
	HeaderRetryCount         = "x-retry-count"
	HeaderDeliveryCount      = "x-delivery-count"
	HeaderAcquiredCount      = "x-acquired-count"
	HeaderFinalRetryCount    = "x-final-retry-count"
	HeaderRedrivenCount      = "x-redriven-count"
	HeaderOriginalQueue      = "x-original-queue"
	HeaderOriginalExchange   = "x-original-exchange"
	HeaderOriginalRoutingKey = "x-original-routing-key"
)

// maxCount bounds every count that is read from a message: a forged one must not overflow the sum.
const maxCount = math.MaxInt32

// maxDigits is the length of the longest text that is read as a count: maxCount and its successor have so many digits.
const maxDigits = 10

// Deliveries returns a quorum queue's count of deliveries without an ack, 0 elsewhere. Use it for caution, never to
// count attempts: brokers count differently, and a publisher can write it.
func Deliveries(h amqp.Table) int {
	n, _ := amqpvalue.Count(h[HeaderDeliveryCount])
	return n
}

// readHistory reads from the headers of m what happened to it before. RetryCount, how many attempts failed, is
//
//	max( max( x-retry-count , x-delivery-count - 1 ) + x-death[reason=rejected, queue].count , x-final-retry-count )
//
// x-delivery-count is only read as decimal text, x-retry-count as an integer or decimal text, the others as integers.
// A term that is anything else is 0; terms are clamped to 2^31-1. It never panics.
//
// Exchange and RoutingKey become those of the first publish: x-original-* of a message with a count or one that was
// redriven, else the oldest x-death entry of the queue.
func (m *Message) readHistory() {
	rejected := m.readDeaths()
	published, hasPublished := countPublished(m.Headers)
	final, hasFinal := amqpvalue.Count(m.Headers[HeaderFinalRetryCount])
	m.RetryCount = min(max(published+rejected, final), maxCount)
	_, redriven := RedriveCount(m.Headers)
	if !hasPublished && !hasFinal && !redriven {
		return
	}
	if s, ok := m.Headers[HeaderOriginalExchange].(string); ok {
		m.Exchange = s
	}
	if s, ok := m.Headers[HeaderOriginalRoutingKey].(string); ok {
		m.RoutingKey = s
	}
}

// RedriveCount returns how often a message was moved back from a dead-letter queue. The header is text in messages that
// were moved to the queue of another service.
func RedriveCount(h amqp.Table) (n int, found bool) {
	if n, found = amqpvalue.Count(h[HeaderRedrivenCount]); !found {
		n, found = countText(h[HeaderRedrivenCount])
	}
	return n, found
}

// countPublished returns how many failed attempts ended with a publish to a retry queue, by this sidecar or by another
// consumer. Other consumers may write text, and may count attempts, which are one more than retries. An integer in
// x-delivery-count is the broker's and counts no attempts, see Deliveries.
func countPublished(h amqp.Table) (n int, found bool) {
	retries, hasRetries := amqpvalue.Count(h[HeaderRetryCount])
	if !hasRetries {
		retries, hasRetries = countText(h[HeaderRetryCount])
	}
	attempt, hasAttempt := countText(h[HeaderDeliveryCount])
	return min(max(retries, attempt-1), maxCount), hasRetries || hasAttempt
}

// countText reads a count that is written as decimal text: 1 to maxDigits digits and nothing else.
func countText(v any) (n int, ok bool) {
	s, _ := v.(string)
	if s == "" || len(s) > maxDigits || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, _ = strconv.Atoi(s)
	return n, true
}

type death struct {
	count                        int
	reason, queue, exchange, key string
}

// readDeaths returns the count of the queue's own "rejected" entry at any position: the order of a third entry differs
// between broker versions. Of forged duplicates the larger count wins. It sets Malformed, Looped and Untrusted, and
// where the message was published before it came to the queue for the first time.
func (m *Message) readDeaths() (rejected int) {
	raw, present := m.Headers[HeaderDeath]
	if !present {
		return 0
	}
	entries, ok := raw.([]any)
	m.Malformed = !ok || len(entries) == 0
	returns, delivered := 0, m.Exchange
	for _, e := range entries {
		t, ok := e.(amqp.Table)
		if !ok {
			m.Malformed = true
			continue
		}
		d, ok := readDeath(t)
		m.Malformed = m.Malformed || !ok
		switch {
		case d.queue != m.Queue:
			if d.reason == "expired" {
				returns = min(returns+d.count, maxCount)
			}
			continue
		case d.reason != "rejected":
			m.Looped = true
		default:
			rejected = max(rejected, d.count)
		}
		// Retries may return by the default exchange with the queue's name as the key. An entry of such a return does not
		// say where the message was published, if this delivery returned the same way.
		if d.exchange != "" || d.key != "" && (d.key != m.Queue || delivered != "") {
			m.Exchange, m.RoutingKey = d.exchange, d.key
		}
	}
	m.Untrusted = rejected > returns
	return rejected
}

// readDeath reads one x-death entry; ok is false when a field the broker relies on is missing or of a foreign type.
func readDeath(t amqp.Table) (d death, ok bool) {
	var counted, queued, routed bool
	d.count, counted = amqpvalue.Count(t["count"])
	d.reason, _ = t["reason"].(string)
	d.queue, queued = t["queue"].(string)
	d.exchange, routed = t["exchange"].(string)
	keys, keyed := t["routing-keys"].([]any)
	for i, k := range keys {
		s, isString := k.(string)
		keyed = keyed && isString
		if i == 0 {
			d.key = s
		}
	}
	return d, counted && queued && routed && keyed && slices.Contains(deathReasons, d.reason)
}

// deathReasons are the reasons that a broker writes.
var deathReasons = []string{"rejected", "expired", "maxlen", "delivery_limit"}
