package broker

import (
	"encoding/binary"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// table reads a header table into the types that the client library uses for each kind of field. All keys and texts
// share one copy of the table's bytes. It reads what defuse has made readable: anything else makes it bad.
type table struct {
	cursor

	text string // the same bytes as b at the start
}

// readTable reads the entries of a header table; whole is false when one of them is not well-formed.
func readTable(entries []byte) (t amqp.Table, whole bool) {
	r := table{cursor: cursor{b: entries}, text: string(entries)}
	t = r.entries(len(entries), 0)
	return t, !r.bad
}

// part returns the next n bytes as text.
func (t *table) part(n int) string {
	at := len(t.text) - len(t.b)
	if t.bytes(n) == nil && n != 0 {
		return ""
	}
	return t.text[at : at+n]
}

// size reads the length of a text or a container, which must fit.
func (t *table) size() int {
	n := t.uint32()
	if n > math.MaxInt32 || int(n) > len(t.b) {
		t.bad, t.b = true, nil
		return 0
	}
	return int(n)
}

// entries reads the next n bytes as a table.
func (t *table) entries(n, depth int) amqp.Table {
	if depth > maxDepth {
		t.bad = true
	}
	m := make(amqp.Table, count(t.b[:min(n, len(t.b))]))
	for end := len(t.b) - n; len(t.b) > end && !t.bad; {
		key := t.part(int(t.uint8()))
		m[key] = t.value(depth)
		if len(t.b) < end || len(m) > maxElements {
			t.bad = true
		}
	}
	return m
}

// count is the number of entries of a table that holds no containers, to make room for; of others it may be any.
func count(entries []byte) (n int) {
	for c := (cursor{b: entries}); len(c.b) > 0 && n < 64; n++ {
		c.short()
		switch c.uint8() {
		case 'S', 'x', 'A', 'F':
			c.long()
		case 't', 'b', 'B':
			c.bytes(1)
		case 's', 'u':
			c.bytes(2)
		case 'I', 'i', 'f':
			c.bytes(4)
		case 'D':
			c.bytes(5)
		case 'l', 'd', 'T':
			c.bytes(8)
		}
	}
	return n
}

func (t *table) array(n, depth int) []any {
	if depth > maxDepth {
		t.bad = true
	}
	var a []any
	for end := len(t.b) - n; len(t.b) > end && !t.bad; {
		a = append(a, t.value(depth))
		if len(t.b) < end || len(a) > maxElements {
			t.bad = true
		}
	}
	return a
}

// value reads one value, its type byte first. depth is that of the container it is in.
func (t *table) value(depth int) any {
	switch t.uint8() {
	case 't':
		return t.uint8() != 0
	case 'B':
		return t.uint8()
	case 'b':
		return int8(t.uint8()) // #nosec G115 -- the same bits with a sign, as on the wire
	case 's':
		return int16(t.uint16()) // #nosec G115 -- the same bits with a sign, as on the wire
	case 'u':
		return t.uint16()
	case 'I':
		return int32(t.uint32()) // #nosec G115 -- the same bits with a sign, as on the wire
	case 'i':
		return t.uint32()
	case 'l':
		return int64(t.uint64()) // #nosec G115 -- the same bits with a sign, as on the wire
	case 'f':
		return math.Float32frombits(t.uint32())
	case 'd':
		return math.Float64frombits(t.uint64())
	case 'D':
		return t.decimal()
	case 'T':
		return time.Unix(int64(t.uint64()), 0) // #nosec G115 -- the same bits with a sign, as on the wire
	case 'S':
		return t.part(t.size())
	case 'x':
		n := t.size()
		return append(make([]byte, 0, n), t.bytes(n)...)
	case 'A':
		return t.array(t.size(), depth+1)
	case 'F':
		return t.entries(t.size(), depth+1)
	case 'V':
		return nil
	}
	t.bad = true
	return nil
}

func (t *table) decimal() amqp.Decimal {
	b := t.bytes(5)
	if b == nil {
		return amqp.Decimal{}
	}
	return amqp.Decimal{Scale: b[0], Value: int32(binary.BigEndian.Uint32(b[1:]))} // #nosec G115 -- the same bits with a sign, as on the wire
}
