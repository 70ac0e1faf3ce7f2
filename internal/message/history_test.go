package message

import (
	"math"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func rejected(queue string, count any) amqp.Table {
	return amqp.Table{
		"count": count, "reason": "rejected", "queue": queue, "exchange": "wms.main-exchange",
		"routing-keys": []any{"order.created"},
	}
}

func expired(queue string) amqp.Table {
	t := rejected(queue, int64(7))
	t["reason"] = "expired"
	return t
}

// loops names the rows in which the message left its own queue by another way than a reject.
var loops = map[string]bool{"the entry is looked up, not indexed": true, "expired only": true, "a reason no broker writes": true}

func TestRetryCount(t *testing.T) {
	t.Parallel()
	const q = "wms.queue.wms-cincout"
	for _, c := range []struct {
		name      string
		headers   amqp.Table
		want      int
		malformed bool
	}{
		{"no headers", nil, 0, false},
		{"first rejection", amqp.Table{"x-death": []any{rejected(q, int64(1))}}, 1, false},
		{"the entry is looked up, not indexed", amqp.Table{"x-death": []any{expired("wms.retry-queue.wms-cincout"), expired(q), rejected(q, int64(3))}}, 3, false},
		{"another queue's rejections", amqp.Table{"x-death": []any{rejected("other", int64(9))}}, 0, false},
		{"expired only", amqp.Table{"x-death": []any{expired(q)}}, 0, false},
		{"a reason no broker writes", amqp.Table{"x-death": []any{amqp.Table{
			"count": int64(1), "reason": "tired", "queue": q, "exchange": "", "routing-keys": []any{"k"},
		}}}, 0, true},
		{"int32", amqp.Table{"x-death": []any{rejected(q, int32(4))}}, 4, false},
		{"uint64 beyond int64", amqp.Table{"x-death": []any{rejected(q, uint64(math.MaxUint64))}}, math.MaxInt32, false},
		{"own counter adds", amqp.Table{"x-retry-count": int32(2), "x-death": []any{rejected(q, int64(3))}}, 5, false},
		{"parked before", amqp.Table{"x-final-retry-count": int32(10)}, 10, false},
		{"parked before, broker restarted its count", amqp.Table{"x-final-retry-count": int32(10), "x-death": []any{rejected(q, int64(1))}}, 10, false},
		{"parked before, count went on", amqp.Table{"x-final-retry-count": int32(10), "x-death": []any{rejected(q, int64(11))}}, 11, false},
		{"own counter as text", amqp.Table{"x-retry-count": "2"}, 2, false},
		{"own counter as text adds", amqp.Table{"x-retry-count": "2", "x-death": []any{rejected(q, int64(3))}}, 5, false},
		{"own counter as text, ten digits", amqp.Table{"x-retry-count": "9999999999"}, math.MaxInt32, false},
		{"own counter as text, eleven digits", amqp.Table{"x-retry-count": "00000000001"}, 0, false},
		{"own counter as text, empty", amqp.Table{"x-retry-count": ""}, 0, false},
		{"own counter as text, signed", amqp.Table{"x-retry-count": "+3"}, 0, false},
		{"own counter as text in digits of another script", amqp.Table{"x-retry-count": "\u0663"}, 0, false},
		{"own counter as bytes", amqp.Table{"x-retry-count": []byte("3")}, 0, false},
		{"final count as text", amqp.Table{"x-final-retry-count": "3"}, 0, false},
		{"third attempt as text", amqp.Table{"x-delivery-count": "3"}, 2, false},
		{"first attempt as text", amqp.Table{"x-delivery-count": "1"}, 0, false},
		{"rejected after another consumer's retries", amqp.Table{"x-delivery-count": "3", "x-death": []any{rejected(q, int64(2))}}, 4, false},
		{"both counts of the delay ladder", amqp.Table{"x-retry-count": int32(2), "x-delivery-count": "3"}, 2, false},
		{"an attempt behind the own counter", amqp.Table{"x-retry-count": int32(5), "x-delivery-count": "3"}, 5, false},
		{"an attempt beyond the own counter", amqp.Table{"x-retry-count": int32(1), "x-delivery-count": "9"}, 8, false},
		{"the largest count of the delay ladder", amqp.Table{"x-retry-count": int32(math.MaxInt32), "x-delivery-count": "2147483648"}, math.MaxInt32, false},
		{"sum does not overflow", amqp.Table{"x-retry-count": int64(math.MaxInt64), "x-death": []any{rejected(q, int64(math.MaxInt64))}}, math.MaxInt32, false},
		{"two entries of one queue", amqp.Table{"x-death": []any{rejected(q, int64(2)), rejected(q, int64(5)), rejected(q, int64(3))}}, 5, false},
		{"an integer in x-delivery-count is not read", amqp.Table{"x-delivery-count": int64(8), "x-acquired-count": int64(8)}, 0, false},

		{"x-death a string", amqp.Table{"x-death": "99"}, 0, true},
		{"x-death empty", amqp.Table{"x-death": []any{}}, 0, true},
		{"x-death of ints", amqp.Table{"x-death": []any{int64(1), int64(2)}}, 0, true},
		{"table without count", amqp.Table{"x-death": []any{amqp.Table{"reason": "rejected", "queue": q}}}, 0, true},
		{"count -1", amqp.Table{"x-death": []any{rejected(q, int64(-1))}}, 0, true},
		{"count a string", amqp.Table{"x-death": []any{rejected(q, "3")}}, 0, true},
		{"a good entry beside a broken one", amqp.Table{"x-death": []any{rejected(q, int64(2)), "x"}}, 2, true},
		{"routing keys of ints", amqp.Table{"x-death": []any{amqp.Table{
			"count": int64(1), "reason": "rejected", "queue": q, "exchange": "", "routing-keys": []any{int64(1)},
		}}}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			m.FromDelivery(&amqp.Delivery{Headers: c.headers}, q, 10)
			if m.RetryCount != c.want || m.Malformed != c.malformed {
				t.Errorf("RetryCount %d Malformed %v, want %d %v", m.RetryCount, m.Malformed, c.want, c.malformed)
			}
			if _, looped := loops[c.name]; m.Looped != looped {
				t.Errorf("Looped = %v", m.Looped)
			}
			if m.LastAttempt() != (c.want >= 10) {
				t.Errorf("LastAttempt = %v at %d of 10", m.LastAttempt(), c.want)
			}
		})
	}
}

// TestUntrusted: a message that was rejected more often than it returned was moved by hand, or its history is made up.
func TestUntrusted(t *testing.T) {
	t.Parallel()
	const q, wait = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout"
	waited := func(n int64) amqp.Table {
		e := expired(wait)
		e["count"] = n
		return e
	}
	for _, c := range []struct {
		name  string
		death any
		want  bool
	}{
		{"never rejected", nil, false},
		{"returned every time", []any{waited(3), rejected(q, int64(3))}, false},
		{"returned from two retry queues", []any{waited(2), rejected(q, int64(3)), expired("older")}, false},
		{"returned from two retry queues in turn", []any{waited(1), rejected(q, int64(3)), waited(2)}, false},
		{"taken out of the retry queue", []any{waited(2), rejected(q, int64(3))}, true},
		{"taken out of it the first time", []any{rejected(q, int64(1))}, true},
		{"rejected elsewhere", []any{rejected("other", int64(5))}, false},
	} {
		h := amqp.Table{"x-any": "thing"}
		if c.death != nil {
			h["x-death"] = c.death
		}
		var m Message
		if m.FromDelivery(&amqp.Delivery{Headers: h}, q, 10); m.Untrusted != c.want {
			t.Errorf("%s: %v", c.name, m.Untrusted)
		}
	}
}

// TestOrigin: the exchange and the key are those of the first publish if the history says it, else those of the delivery,
// which is a return from a retry here.
func TestOrigin(t *testing.T) {
	t.Parallel()
	const q = "q"
	entry := func(reason, exchange, key string) amqp.Table {
		return amqp.Table{"count": int64(1), "reason": reason, "queue": q, "exchange": exchange, "routing-keys": []any{key}}
	}
	for _, c := range []struct {
		name          string
		headers       amqp.Table
		exchange, key string
	}{
		{"first delivery", amqp.Table{"a": "b"}, "", q},
		{"first delivery with a forged origin", amqp.Table{"x-original-exchange": "evil", "x-original-routing-key": "evil"}, "", q},
		{"a count without an origin", amqp.Table{"x-retry-count": int32(2)}, "", q},
		{"rejected by this queue", amqp.Table{"x-death": []any{rejected(q, int64(1))}}, "wms.main-exchange", "order.created"},
		{"expired in this queue", amqp.Table{"x-death": []any{expired(q)}}, "wms.main-exchange", "order.created"},
		{"expired in this queue, later rejected", amqp.Table{"x-death": []any{entry("rejected", "", q), entry("expired", "x", "k")}}, "x", "k"},
		{"rejected, later expired in this queue", amqp.Table{"x-death": []any{entry("expired", "", q), entry("rejected", "x", "k")}}, "x", "k"},
		{"rejected, in another order", amqp.Table{"x-death": []any{entry("rejected", "x", "k"), entry("expired", "", q)}}, "x", "k"},
		{"published without a key", amqp.Table{"x-death": []any{entry("rejected", "x", "")}}, "x", ""},
		{"rejected elsewhere", amqp.Table{"x-death": []any{rejected("other", int64(1))}}, "", q},
		{"an entry without fields", amqp.Table{"x-death": []any{amqp.Table{"queue": q}}}, "", q},
		{"republished", amqp.Table{"x-retry-count": int32(1), "x-original-exchange": "e", "x-original-routing-key": "k"}, "e", "k"},
		{"published without a key, republished", amqp.Table{"x-retry-count": int32(1), "x-original-exchange": "e", "x-original-routing-key": ""}, "e", ""},
		{"republished by another consumer", amqp.Table{"x-retry-count": "1", "x-original-exchange": "e", "x-original-routing-key": "k"}, "e", "k"},
		{"republished by a delay ladder's consumer", amqp.Table{"x-delivery-count": "2", "x-original-routing-key": "k"}, "", "k"},
		{"redriven to this queue from another service", amqp.Table{"x-redriven-count": "1", "x-original-exchange": "e", "x-original-routing-key": "k"}, "e", "k"},
		{"the same as an integer", amqp.Table{"x-redriven-count": int32(1), "x-original-exchange": "e", "x-original-routing-key": "k"}, "e", "k"},
		{"counted by the broker", amqp.Table{"x-delivery-count": int64(2), "x-original-routing-key": "k"}, "", q},
		{"parked and moved back", amqp.Table{"x-final-retry-count": int32(10), "x-original-exchange": "e", "x-original-routing-key": "k", "x-death": []any{rejected(q, int64(10))}}, "e", "k"},
		{"published to the queue by its name", amqp.Table{"x-death": []any{entry("rejected", "", q)}}, "", q},
		{"parked and moved back by a tool that dropped the origin", amqp.Table{"x-final-retry-count": int32(10), "x-original-exchange": int32(1), "x-death": []any{rejected(q, int64(10))}}, "wms.main-exchange", "order.created"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var m Message
			m.FromDelivery(&amqp.Delivery{Headers: c.headers, RoutingKey: q}, q, 10)
			if m.Exchange != c.exchange || m.RoutingKey != c.key {
				t.Errorf("%q %q, want %q %q", m.Exchange, m.RoutingKey, c.exchange, c.key)
			}
		})
	}
}

// TestOriginIsTheQueue: a message that was published to the queue by its name has returned from a retry by an exchange.
func TestOriginIsTheQueue(t *testing.T) {
	t.Parallel()
	h := amqp.Table{"x-death": []any{amqp.Table{
		"count": int64(1), "reason": "rejected", "queue": "q", "exchange": "", "routing-keys": []any{"q"},
	}}}
	var m Message
	m.FromDelivery(&amqp.Delivery{Headers: h, Exchange: "retries", RoutingKey: "back"}, "q", 10)
	if m.Exchange != "" || m.RoutingKey != "q" {
		t.Errorf("%q %q", m.Exchange, m.RoutingKey)
	}
}

func TestFromDeliveryForgetsThePreviousMessage(t *testing.T) {
	t.Parallel()
	var m Message
	m.FromDelivery(&amqp.Delivery{
		MessageId: "1", Body: []byte("x"), Redelivered: true,
		Headers: amqp.Table{"x-death": "broken", "x-retry-count": int32(4)},
	}, "q", 3)
	m.Trace.Traceparent = "old"
	m.FromDelivery(&amqp.Delivery{}, "q", 3)
	if m.MessageID != "" || m.Body != nil || m.Redelivered || m.RetryCount != 0 || m.Malformed || m.Trace != (TraceContext{}) {
		t.Errorf("kept something of the previous message: %+v", m)
	}
}

func TestNamesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for r := range Reasons {
		name := Reason(r).String()
		if name == "" || seen[name] {
			t.Errorf("reason %d has the name %q", r, name)
		}
		seen[name] = true
	}
	for a := range Actions {
		if Action(a).String() == "" {
			t.Errorf("action %d has no name", a)
		}
	}
	for f := FailureNone + 1; f <= FailureDeferred; f++ {
		if f.String() == "" {
			t.Errorf("failure %d has no name", f)
		}
	}
	if Actions != int(Release)+1 || Reasons != int(ReasonDeferred)+1 {
		t.Errorf("%d names of actions and %d of reasons", Actions, Reasons)
	}
}

func TestReply(t *testing.T) {
	t.Parallel()
	const address = "amq.rabbitmq.reply-to.g1h2.x=="
	for name, c := range map[string]struct {
		value          any
		address, token string
	}{
		"not asked for":      {nil, "", ""},
		"asked":              {ReplyTo(address, "7"), address, "7"},
		"another queue":      {ReplyTo("victim", "7"), "", ""},
		"no text":            {int32(1), "", ""},
		"no token":           {address, "", ""},
		"an endless address": {ReplyTo(address+strings.Repeat("x", 300), "7"), "", ""},
		"an endless token":   {ReplyTo(address, strings.Repeat("7", 100)), "", ""},
	} {
		if a, token := Reply(amqp.Table{HeaderReply: c.value}); a != c.address || token != c.token {
			t.Errorf("%s: %q %q", name, a, token)
		}
	}
	if a, _ := Reply(nil); a != "" {
		t.Error("an address without headers")
	}
}

func TestReservedNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ bookkeeping, reserved bool }{
		"x-death": {true, true}, "X-Death": {true, true}, "x_death": {true, true}, "x-death-more": {true, true}, "x-first-death-queue": {true, true},
		"x.last death.reason": {true, true}, "x-final-reason": {true, true}, "x-redriven-at": {true, true}, "x_retry_count": {true, true},
		"x-delivery-count": {true, true}, "x-original-queue": {true, true}, "X_Original.Exchange": {true, true}, "x-original-routing-key": {true, true},
		"x-original-filename": {}, "x-original-routing-keys": {}, "x-original-user-id": {true, true}, "X_Original_CC": {true, true}, "x-original-url": {}, "X-Acquired-Count": {true, true}, "CC": {false, true}, "bcc": {false, true},
		"": {}, "x": {}, "x-": {}, "c": {}, "x-delivery-counts": {}, "x-deat": {}, "xx-death": {}, "x-tenant": {}, "ccc": {}, "y-death": {},
	} {
		if Bookkeeping(name) != want.bookkeeping || Bookkeeping([]byte(name)) != want.bookkeeping || Reserved(name) != want.reserved {
			t.Errorf("%q: %v %v", name, Bookkeeping(name), Reserved(name))
		}
	}
}

func TestGlobs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		pattern, name string
		exact, folded bool
	}{
		{"*", "", true, true}, {"**", "anything", true, true}, {"", "", true, true}, {"", "a", false, false}, {"a.*", "a.b", true, true}, {"a.*", "A.b", false, true},
		{"A?", "ab", false, true}, {"A?", "Ab", true, true}, {"?", "", false, false}, {"*a*b", "xaybaab", true, true}, {"*a*b", "xayba", false, false}, {"a*", "a", true, true},
	} {
		for fold, want := range map[bool]bool{false: tc.exact, true: tc.folded} {
			g := NewGlobs([]string{"never", tc.pattern}, fold)
			if got := g.Match(tc.name); got != want {
				t.Errorf("%q matches %q, fold %v: %v", tc.pattern, tc.name, fold, got)
			}
		}
	}
	if g := NewGlobs(nil, true); g.Match("") {
		t.Error("no pattern matches something")
	}
}
