package message

import (
	"math"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Names of the headers that carry a message's history. The broker writes x-death; the others are ours.
const (
	HeaderDeath              = "x-death"
	HeaderRetryCount         = "x-retry-count"
	HeaderCrashes            = "x-retry-crashes"
	HeaderFinalRetryCount    = "x-final-retry-count"
	HeaderOriginalQueue      = "x-original-queue"
	HeaderOriginalExchange   = "x-original-exchange"
	HeaderOriginalRoutingKey = "x-original-routing-key"
)

// maxCount bounds every count read from a message. Headers are the publisher's to forge: a huge number must not
// overflow the sum.
const maxCount = math.MaxInt32

// Deliveries is how often a quorum queue says it has delivered the message in vain, 0 elsewhere. It is good for
// caution, never for counting attempts: brokers differ in what they count, and a publisher can write it.
func Deliveries(h amqp.Table) int {
	n, _ := Integer(h["x-delivery-count"])
	return n
}

// Crashes is how many crashes a message says it has been through. A publisher can write it, so it only ever asks for
// caution: a message is parked for a crash that was seen, never for one that it came with.
func Crashes(h amqp.Table) int {
	n, _ := Integer(h[HeaderCrashes])
	return n
}

type history struct {
	retries       int
	malformed     bool
	looped        bool
	moved         bool
	returned      bool
	exchange, key string
}

// RetryCount reads how many attempts on queue failed before:
//
//	max( x-retry-count + x-death[reason=rejected, queue].count , x-final-retry-count )
//
// A term that is absent or not a non-negative integer is 0; terms are clamped to 2^31-1. It never panics.
func RetryCount(h amqp.Table, queue string) int { return readHistory(h, queue).retries }

func readHistory(h amqp.Table, queue string) history {
	var r history
	own, hasOwn := r.findRejected(h, queue)
	published, hasPublished := Integer(h[HeaderRetryCount])
	final, hasFinal := Integer(h[HeaderFinalRetryCount])
	r.retries = min(max(published+own.count, final), maxCount)

	if r.returned = hasOwn || hasPublished || hasFinal; !r.returned {
		return r
	}
	r.exchange, r.key = own.exchange, own.key
	if s, ok := h[HeaderOriginalExchange].(string); ok && (hasPublished || hasFinal) {
		r.exchange = s
	}
	if s, ok := h[HeaderOriginalRoutingKey].(string); ok && (hasPublished || hasFinal) {
		r.key = s
	}
	return r
}

type death struct {
	count         int
	exchange, key string
}

// findRejected looks the queue's own "rejected" entry up, wherever it stands: the order of a third entry differs
// between broker versions. Forged duplicates: the larger count wins. It notes anything a broker would not have written,
// and entries that say the message left this queue in another way than by a reject.
func (r *history) findRejected(h amqp.Table, queue string) (own death, found bool) {
	raw, present := h[HeaderDeath]
	if !present {
		return death{}, false
	}
	entries, ok := raw.([]any)
	r.malformed = !ok || len(entries) == 0
	returns := 0
	for _, e := range entries {
		t, ok := e.(amqp.Table)
		if !ok {
			r.malformed = true
			continue
		}
		d, reason, from, ok := readDeath(t)
		r.malformed = r.malformed || !ok
		switch {
		case from != queue:
			if reason == "expired" {
				returns = min(returns+d.count, maxCount)
			}
		case reason != "rejected":
			r.looped = true
		default:
			if !found || d.count > own.count {
				own = d
			}
			found = true
		}
	}
	r.moved = own.count > returns
	return own, found
}

// readDeath reads one x-death entry; ok is false when a field the broker relies on is missing or of a foreign type.
func readDeath(t amqp.Table) (d death, reason, queue string, ok bool) {
	var counted, reasoned, queued, routed bool
	d.count, counted = Integer(t["count"])
	reason, reasoned = t["reason"].(string)
	queue, queued = t["queue"].(string)
	d.exchange, routed = t["exchange"].(string)
	keys, keyed := t["routing-keys"].([]any)
	for i, k := range keys {
		s, isString := k.(string)
		keyed = keyed && isString
		if i == 0 {
			d.key = s
		}
	}
	return d, reason, queue, counted && reasoned && queued && routed && keyed && slices.Contains(deathReasons, reason)
}

// deathReasons are what a broker writes.
var deathReasons = []string{"rejected", "expired", "maxlen", "delivery_limit"}

// Integer reads v as a count: any AMQP integer type that is not negative, clamped to maxCount.
func Integer(v any) (int, bool) {
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case int32:
		n = int64(v)
	case int16:
		n = int64(v)
	case int8:
		n = int64(v)
	case uint8:
		n = int64(v)
	case uint16:
		n = int64(v)
	case uint32:
		n = int64(v)
	case uint64:
		n = int64(min(v, maxCount)) // #nosec G115 -- clamped
	case int:
		n = int64(v)
	default:
		return 0, false
	}
	if n < 0 {
		return 0, false
	}
	return int(min(n, maxCount)), true
}
