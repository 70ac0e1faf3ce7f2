package topology

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// TestPublishable: the client library refuses a whole message over one value it does not know.
func TestPublishable(t *testing.T) {
	t.Parallel()
	type own struct{ A int }
	at := time.Unix(1700000000, 0)
	for _, c := range []struct{ in, want any }{
		{nil, nil}, {true, true}, {int8(1), int8(1)}, {int16(1), int16(1)}, {int32(1), int32(1)}, {int64(1), int64(1)},
		{uint8(1), uint8(1)}, {uint16(1), uint16(1)}, {uint32(1), uint32(1)}, {float32(1), float32(1)}, {1.5, 1.5},
		{"s", "s"}, {[]byte{1}, []byte{1}}, {amqp.Decimal{Scale: 1, Value: 2}, amqp.Decimal{Scale: 1, Value: 2}}, {at, at},
		{math.MaxInt, int64(math.MaxInt)}, {uint(7), int64(7)}, {uint64(math.MaxUint64), "18446744073709551615"},
		{own{1}, "{1}"}, {[]string{"a"}, "[a]"},
		{map[string]any{"a": 1}, amqp.Table{"a": int64(1)}},
		{amqp.Table{"a": []any{own{2}, amqp.Table{strings.Repeat("k", 256): 1, "k": nil}}}, amqp.Table{"a": []any{"{2}", amqp.Table{"k": nil}}}},
	} {
		got := amqpvalue.Copy(c.in)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%#v became %#v, want %#v", c.in, got, c.want)
		}
		if err := (amqp.Table{"x": got}).Validate(); err != nil {
			t.Errorf("%#v: %v", c.in, err)
		}
		if _, cutShort := c.in.(int); !cutShort && entrySize("x", c.in) != entrySize("x", got) {
			t.Errorf("%#v counts %d bytes, but what is published has %d", c.in, entrySize("x", c.in), entrySize("x", got))
		}
	}
}

// TestImpossibleKeysAreLeftOut: a key over 255 bytes cannot have come over the wire, and would end the connection.
func TestImpossibleKeysAreLeftOut(t *testing.T) {
	t.Parallel()
	m := &message.Message{Headers: amqp.Table{strings.Repeat("k", 256): 1, strings.Repeat("k", 255): 1, "": 1}}
	h := copyHeaders(m, func(string) bool { return false })
	if len(h) != 2 {
		t.Errorf("%d headers", len(h))
	}
}
