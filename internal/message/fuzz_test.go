package message

import (
	"math"
	"reflect"
	"regexp"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

const fuzzQueue = "wms.queue.a"

// FuzzRetryCount reads a history that a publisher has written in any way it likes, and compares the count with the
// formula written down a second time, over types found by reflection. The order of the entries must make no difference,
// nor must entries of other queues.
func FuzzRetryCount(f *testing.F) {
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := forge(&b)
		var m Message
		m.FromDelivery(&amqp.Delivery{Headers: h}, fuzzQueue, 10)
		got := m.RetryCount
		if want := reference(h); got != want {
			t.Fatalf("RetryCount(%v) = %d, want %d", h, got, want)
		}
		if n := Deliveries(h); n < 0 || n > math.MaxInt32 {
			t.Fatalf("Deliveries(%v) = %d", h, n)
		}
		entries, ok := h[HeaderDeath].([]any)
		if !ok {
			return
		}
		entries = append(slices.Clone(entries), rejected("other", int64(1<<40)))
		slices.Reverse(entries)
		h[HeaderDeath] = entries
		if m.FromDelivery(&amqp.Delivery{Headers: h}, fuzzQueue, 10); m.RetryCount != got {
			t.Fatalf("in another order, with another queue's entry: %d, want %d: %v", m.RetryCount, got, h)
		}
	})
}

// forge builds a header table around the names that carry a history.
func forge(b *[]byte) amqp.Table {
	h := amqp.Table{}
	flags := octet(b)
	for bit, name := range []string{
		HeaderRetryCount, HeaderFinalRetryCount, HeaderOriginalExchange, HeaderOriginalRoutingKey, "x-delivery-count", HeaderDeath,
	} {
		if flags>>bit&1 != 0 {
			h[name] = brokertest.Value(b)
		}
	}
	if flags>>6&1 != 0 {
		entries := []any{}
		for range octet(b) % 8 {
			entries = append(entries, forgeEntry(b))
		}
		h[HeaderDeath] = entries
	}
	return h
}

// forgeEntry is an x-death entry of which at most one thing is wrong for each bit that is set.
func forgeEntry(b *[]byte) any {
	flags := octet(b)
	if flags&1 != 0 {
		return brokertest.Value(b)
	}
	e := rejected(fuzzQueue, brokertest.Value(b))
	if flags&2 != 0 {
		e["count"] = int64(octet(b))
	}
	if flags&4 != 0 {
		e["queue"] = "wms.retry-queue.a"
	}
	if flags&8 != 0 {
		e["reason"] = deathReasons[int(octet(b))%len(deathReasons)]
	}
	for bit, name := range []string{"reason", "queue", "exchange", "routing-keys"} {
		if flags>>(4+bit)&1 != 0 {
			e[name] = brokertest.Value(b)
		}
	}
	return e
}

func octet(b *[]byte) byte {
	if len(*b) == 0 {
		return 0
	}
	c := (*b)[0]
	*b = (*b)[1:]
	return c
}

func reference(h amqp.Table) int {
	own := uint64(0)
	if entries, ok := h[HeaderDeath].([]any); ok {
		for _, e := range entries {
			if e, ok := e.(amqp.Table); ok && e["queue"] == any(fuzzQueue) && e["reason"] == any("rejected") {
				own = max(own, natural(e["count"]))
			}
		}
	}
	published := max(natural(h[HeaderRetryCount]), written(h[HeaderRetryCount]), max(written(h["x-delivery-count"]), 1)-1)
	return int(min(max(min(published, math.MaxInt32)+own, natural(h[HeaderFinalRetryCount])), math.MaxInt32))
}

var decimal = regexp.MustCompile(`^[0-9]{1,10}$`)

// written is the number that a text stands for; 0 for everything that is not a plain decimal.
func written(v any) uint64 {
	s, _ := v.(string)
	if !decimal.MatchString(s) {
		return 0
	}
	n := uint64(0)
	for _, c := range s {
		n = 10*n + uint64(c-'0')
	}
	return n
}

// natural is v as a count; 0 for everything that is not one.
func natural(v any) uint64 {
	n := uint64(0)
	switch r := reflect.ValueOf(v); {
	case !r.IsValid():
	case r.CanInt():
		n = uint64(max(r.Int(), 0))
	case r.CanUint():
		n = r.Uint()
	}
	return min(n, math.MaxInt32)
}
