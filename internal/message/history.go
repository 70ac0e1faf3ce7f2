package message

import (
	"math"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
)

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
