package amqpwire

import (
	"encoding/binary"
	"math"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// The limits of the client library's reader. It closes the whole connection when a header table exceeds them, and the
// broker then delivers the same message to the next connection, for ever.
const (
	maxDepth    = amqpvalue.MaxDepth
	maxElements = amqpvalue.MaxElements

	// keptElements leaves enough entries behind a cut for the marker to fit: 192 entries of at least two bytes.
	keptElements = maxElements - 192
)

// hiddenKey marks header entries that were too many to read: its value holds their bytes.
const hiddenKey = "x-hidden-headers"

const opaque = 'x' // a byte array: same layout as a table or an array, a 32 bit length and that many bytes

// vital headers decide where a message goes, so they stay readable when others are hidden.
var vital = map[string]bool{
	message.HeaderDeath: true, message.HeaderRetryCount: true, message.HeaderFinalRetryCount: true,
	message.HeaderDeliveryCount: true,
	message.HeaderOriginalQueue: true, message.HeaderOriginalExchange: true, message.HeaderOriginalRoutingKey: true,
	"x-retry-queue": true,
}

// sanitize makes the payload of a content header frame readable for the client library, whatever header table a
// publisher sent. It changes payload in place and returns it, or its beginning when it had to become shorter:
//
//   - A value that nests too deep, holds too many elements, would cost too much memory or cannot be read becomes
//     opaque: its type byte says byte array from now on. Everything behind it stays where it was.
//   - Type 'L', which some brokers let through and the library does not support, becomes 'l', as long.
//   - Of a table with too many entries some are hidden in one opaque entry at its end, of the same length together.
//   - A payload longer than limit loses its largest values until it fits; it is the only case that changes the length.
//     A broker makes such frames when dead-lettering adds x-death to a table that just fitted.
//
// A payload that is no well-formed content header is returned as it is. lost counts the values a reader will not see.
func sanitize(payload []byte, limit int) (out []byte, lost int) {
	start, end, ok := headerTable(payload)
	if !ok {
		return payload, 0
	}
	table := payload[start:end]
	t := newTally(table)
	n, whole := sanitizeAll('F', table, 0, t)
	lost = t.hidden
	if !whole || n > maxElements {
		lost += replaceEntries(table)
	}
	if len(payload) <= limit {
		return payload, lost
	}
	kept, dropped := shrink(table, len(payload)-limit)
	binary.BigEndian.PutUint32(payload[start-4:], uint32(kept)) // #nosec G115 -- at most the length of a frame
	rest := copy(payload[start+kept:], payload[end:])
	return payload[:start+kept+rest], lost + dropped
}

// headerTable finds the entries of the header table; ok is false when there is none.
func headerTable(payload []byte) (start, end int, ok bool) {
	c := cursor{b: payload}
	c.bytes(headerFixed - 2)
	flags := c.uint16()
	if flags&flagHeaders == 0 {
		return 0, 0, false
	}
	if flags&flagContentType != 0 {
		c.short()
	}
	if flags&flagContentEncoding != 0 {
		c.short()
	}
	entries := c.long()
	end = len(payload) - len(c.b)
	return end - len(entries), end, !c.bad
}

// What decoded headers cost in memory, estimated in bytes: a map with room for its first entries, an entry more, an
// array, an element. Texts share one copy of the table.
const (
	mapCost     = 400
	entryCost   = 64
	arrayCost   = 64
	elementCost = 16
	boxedCost   = 16 // a value that is not in its own place

	// decodedPerByte bounds what the values of a table may cost decoded, for each of its bytes, above decodedFree: tables
	// of real messages cost three to six times their bytes, tiny tables within tables seventy times. Vital headers may
	// cost as much once more, so that a table never costs more than 32 times its bytes and 8 KiB.
	decodedPerByte = 16
	decodedFree    = 4 << 10
)

// tally counts while a table is walked.
type tally struct {
	hidden int // values that became opaque
	cost   int // of what is readable, decoded
	limit  int // of cost; a value that would exceed it becomes opaque
}

func newTally(table []byte) *tally { return &tally{limit: decodedFree + decodedPerByte*len(table)} }

// tableCost is what a table that has been through sanitize costs decoded, in bytes.
func tableCost(table []byte) int {
	t := tally{limit: math.MaxInt / 4}
	sanitizeAll('F', table, 0, &t)
	return t.cost
}

// sanitizeAll walks the entries of a table or the elements of an array, which have no keys, and makes their values
// readable. It returns how many there are, and whether every one is well-formed; it stops at the first that is not.
func sanitizeAll(kind byte, b []byte, depth int, t *tally) (n int, whole bool) {
	switch {
	case kind == 'A':
		t.cost += arrayCost
	case len(b) > 0:
		t.cost += mapCost
	}
	var ok bool
	for at := 0; at < len(b); n++ {
		if kind == 'A' {
			t.cost += elementCost
			at, ok = sanitizeValue(b, at, depth, t)
		} else {
			var e entry
			e, ok = sanitizeEntry(b, at, depth, t)
			at = e.end
		}
		if !ok {
			return n, false
		}
	}
	return n, true
}

// entry is one well-formed key and value of a table, as offsets.
type entry struct {
	start, kind, end int // of the key's length byte, of the type byte, behind the value
	vital            bool
}

func (e entry) size() int { return e.end - e.start }

// sanitizeEntry makes the entry that begins at at readable; ok is false when it is not well-formed.
func sanitizeEntry(table []byte, at, depth int, t *tally) (e entry, ok bool) {
	e = entry{start: at, kind: at + 1 + int(table[at])}
	if e.kind >= len(table) {
		return e, false
	}
	limit := t.limit
	if e.vital = depth == 0 && vital[string(table[at+1:e.kind])]; e.vital {
		t.limit = 2 * limit
	}
	t.cost += entryCost
	e.end, ok = sanitizeValue(table, e.kind, depth, t)
	t.limit = limit
	return e, ok
}

// sanitizeValue makes the value whose type byte is b[at] readable and returns where it ends. depth is that of the
// container the value is in. Inside a container nothing becomes opaque alone: what cannot be read makes the
// outermost container opaque as a whole, so that a reader never sees half of a structure.
func sanitizeValue(b []byte, at, depth int, t *tally) (end int, ok bool) {
	kind := b[at]
	switch kind {
	case 'V':
		return at + 1, true
	case 'L':
		kind, b[at] = 'l', 'l'
	case 'S', 'x', 'A', 'F':
		if len(b)-at < 5 {
			return 0, false
		}
		n := binary.BigEndian.Uint32(b[at+1:])
		if uint64(n) > uint64(len(b)-at-5) { // #nosec G115 -- never negative
			return 0, false
		}
		content := b[at+5 : at+5+int(n)]
		before := t.cost
		if (kind == 'A' || kind == 'F') && !sanitizeContainer(kind, content, depth+1, t) {
			if depth > 0 {
				return 0, false
			}
			b[at] = opaque
			t.cost = before
			t.hidden++
		}
		t.cost += boxedCost
		return at + 5 + len(content), true
	}
	size := amqpvalue.FixedSize(kind)
	if size > 1 {
		t.cost += boxedCost
	}
	return at + 1 + size, size > 0 && size <= len(b)-at-1
}

func sanitizeContainer(kind byte, content []byte, depth int, t *tally) bool {
	if depth > maxDepth {
		return false
	}
	n, whole := sanitizeAll(kind, content, depth, t)
	return whole && n <= maxElements && t.cost <= t.limit
}
