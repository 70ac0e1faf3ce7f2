package brokertest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strconv"
)

// Field encodes an entry of a table.
func Field(key string, kind byte, value ...byte) []byte {
	return append(append(Short(key), kind), value...)
}

// Container encodes the value of a table or an array.
func Container(content ...[]byte) []byte { return Long(string(bytes.Join(content, nil))) }

// Nested returns the value of an array of depth arrays, each in the other; the innermost holds inner.
func Nested(depth int, inner ...byte) (v []byte) {
	for i := depth - 1; i > 0; i-- {
		v = append(binary.BigEndian.AppendUint32(v, uint32(5*i+len(inner))), 'A')
	}
	return append(v, Container(inner)...)
}

// Header returns the payload of a content header frame with these entries, between other properties.
func Header(entries ...[]byte) []byte {
	h := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0xB0, 0x00) // content type, headers, delivery mode
	h = append(h, Short("text/plain")...)
	h = append(h, Container(entries...)...)
	return append(h, 2)
}

// Many joins n entries.
func Many(n int, entry func(i int) []byte) []byte {
	var b bytes.Buffer
	for i := range n {
		b.Write(entry(i))
	}
	return b.Bytes()
}

// DeliverFrame encodes basic.deliver.
func DeliverFrame(channel uint16, consumer string, tag uint64, again bool, exchange, key string) []byte {
	flags := byte(0)
	if again {
		flags = 1
	}
	return Frame(1, channel, Method(60, 60, Short(consumer), binary.BigEndian.AppendUint64(nil, tag), []byte{flags},
		Short(exchange), Short(key)))
}

// ContentFrame encodes the content header of a message with an id and one header, for a body of size bytes.
func ContentFrame(channel uint16, id, value string, size int) []byte {
	h := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(size))
	h = binary.BigEndian.AppendUint16(h, 0x2080) // headers and message id
	h = append(h, Container(Field("text", 'S', Long(value)...))...)
	return Frame(2, channel, append(h, Short(id)...))
}

// FixedSizes are the sizes in bytes of the values of a table that have no length, by type.
var FixedSizes = map[byte]int{
	'V': 0, 't': 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, 'f': 4, 'D': 5, 'l': 8, 'L': 8, 'd': 8, 'T': 8,
}

// randomValue is a value of any type, containers more often than not.
func randomValue(r *rand.Rand, depth int) []byte {
	const kinds = "VtbBsuIifDlLdTSxAFAFAF"
	kind := kinds[r.IntN(len(kinds))]
	if n, ok := FixedSizes[kind]; ok {
		return append([]byte{kind}, RandomBytes(r, n)...)
	}
	var content []byte
	switch {
	case kind == 'S' || kind == 'x':
		content = RandomBytes(r, r.IntN(20))
	case depth < 60:
		for range r.IntN(4) {
			if kind == 'F' {
				content = append(content, Short(strconv.Itoa(r.IntN(50)))...)
			}
			content = append(content, randomValue(r, depth+1)...)
		}
	}
	return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(content))), content...)
}

// RandomBytes returns n random bytes.
func RandomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, 0, n+7)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// RandomTable returns a table that is well-formed half of the time.
func RandomTable(r *rand.Rand) []byte {
	var t []byte
	for range r.IntN(6) {
		t = append(append(t, Short(strconv.Itoa(r.IntN(50)))...), randomValue(r, 0)...)
	}
	if len(t) > 0 && r.IntN(2) == 0 {
		for range 1 + r.IntN(3) {
			t[r.IntN(len(t))] = byte(r.Uint32())
		}
	}
	if len(t) > 0 && r.IntN(8) == 0 {
		t = t[:r.IntN(len(t))]
	}
	return t
}
