package message

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

func TestTopic(t *testing.T) {
	t.Parallel()
	for pattern, keys := range map[string]struct{ matched, others string }{
		"order.created":  {"order.created", "order order.created.eu order.creates .order.created"},
		"order.*":        {"order.created order.", "order order.created.eu orders.created"},
		"order.#":        {"order order.created order.created.eu order..", "orders x.order"},
		"#":              {"a a.b . a..b", ""},
		"*":              {"a", "a.b ."},
		"*.*":            {"a.b . a.", "a a.b.c"},
		"#.eu":           {"eu a.eu a.b.eu eu.eu", "a eu.a"},
		"a.#.c":          {"a.c a.b.c a.b.b.c a.c.c", "a a.b c a.c.b"},
		"#.a.#.b":        {"a.b x.a.b a.a.b.b a.x.b", "b.a a b"},
		"*.#.*":          {"a.b a.b.c", "a"},
		"a.*.#":          {"a.b a.b.c", "a"},
		"a#.b":           {"a#.b", "a.b ax.b"},
		"Order.Created":  {"Order.Created", "order.created"},
		"#.#.#.#.#.#.#x": {"#x a.#x", "ax"},
	} {
		for key := range strings.FieldsSeq(keys.matched) {
			if !NewTopic(pattern).Match(key) {
				t.Errorf("%s does not match %s", pattern, key)
			}
			if !NewTopic(pattern).Covers(key) {
				t.Errorf("%s does not cover %s", pattern, key)
			}
		}
		for key := range strings.FieldsSeq(keys.others) {
			if NewTopic(pattern).Match(key) {
				t.Errorf("%s matches %s", pattern, key)
			}
		}
	}
	// An empty key has no word, as for a broker.
	for pattern, want := range map[string]bool{"": true, "#": true, "#.#": true, "*": false, "a": false, "#.*": false} {
		if NewTopic(pattern).Match("") != want {
			t.Errorf("%q matches the empty key: %v", pattern, !want)
		}
	}
}

func TestTopicCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern, other string
		want           bool
	}{
		{"#", "", true},
		{"*", "", false},
		{"a.*", "a.#", false},
		{"a.#", "a.*.#", true},
		{"#.a.#", "*.a", true},
		{"*.#", "#.*", false}, // it does: such pairs are not seen
		{"a", "*", false},
		{"*", "#", false},
		{"#", "#", true},
		{"a.#.*", "a.#", false},
		{"*.#.*", "*.*", true},
	} {
		if NewTopic(c.pattern).Covers(c.other) != c.want {
			t.Errorf("%q covers %q: %v", c.pattern, c.other, !c.want)
		}
	}
}

// TestTopicCostsLittle: a publisher chooses the key.
func TestTopicCostsLittle(t *testing.T) { //nolint:paralleltest // counts allocations
	pattern, key := NewTopic(strings.Repeat("#.a.", 60)+"b"), strings.Repeat("a.", 127)+"a"
	if n := testing.AllocsPerRun(100, func() {
		if pattern.Match(key) {
			t.Error("matches")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestKey(t *testing.T) {
	t.Parallel()
	m := &Message{RoutingKey: "order.created", CorrelationID: "c-1", Headers: amqp.Table{
		"customer": "c 1", "number": int32(7), "bytes": []byte("b"), "void": nil, "long": []any{strings.Repeat("x", 2*maxKey)},
		"list": []any{"a", int64(1)},
	}}
	for by, want := range map[string]string{
		"routing-key": "order.created", "correlation-id": "c-1", "queue": "queue", "header:customer": "c 1", "header:number": "7",
		"header:bytes": "b", "header:void": "", "header:absent": "", "header:list": `["a",1]`, "header:long": `["` + strings.Repeat("x", maxKey-2),
	} {
		if got := m.Key(by); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	if got := (&Message{}).Key("correlation-id"); got != "" {
		t.Errorf("the key of a message without it is %q", got)
	}
}

func TestTopicOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"a", "a", true}, {"a", "b", false}, {"a.*", "*.b", true}, {"a.*", "a", false}, {"#", "a.b.c", true}, {"#", "", true}, {"", "*", false},
		{"a.#", "#.b", true}, {"a.#.c", "a.*", true}, {"a.#.c", "a.b", false}, {"order.created", "orders.*", false}, {"#.a.#", "b.*.*", true},
		{"*.*", "#.a.#.b.#.c", false}, {"#.#", "#.x", true},
		{strings.Repeat("#.a.", 60) + "b", strings.Repeat("a.#.", 60) + "c", false},
	} {
		a, b := NewTopic(c.a), NewTopic(c.b)
		if a.Overlaps(b) != c.want || b.Overlaps(a) != c.want {
			t.Errorf("%q and %q: %t, %t", c.a, c.b, a.Overlaps(b), b.Overlaps(a))
		}
	}
}
