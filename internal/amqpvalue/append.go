package amqpvalue

import (
	"encoding/binary"
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// AppendTable appends t as it is in a frame, with its length prefix, with the types that the client library would
// write. TableSize must have returned no error.
func AppendTable(b []byte, t amqp.Table) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	for name, v := range t {
		b = AppendShort(b, name)
		b = appendField(b, v)
	}
	return withLength(b, start)
}

// AppendShort appends a short string, of at most ShortMax bytes.
func AppendShort(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...) // #nosec G115 -- at most ShortMax
}

// withLength sets the length prefix at start to the number of bytes behind it.
func withLength(b []byte, start int) []byte {
	binary.BigEndian.PutUint32(b[start:], uint32(len(b)-start-4)) // #nosec G115 -- within a frame
	return b
}

// appendField appends a value with its type byte.
func appendField(b []byte, v any) []byte {
	be := binary.BigEndian
	switch v := v.(type) {
	case string:
		return append(be.AppendUint32(append(b, 'S'), uint32(len(v))), v...) // #nosec G115 -- within a frame
	case []byte:
		return append(be.AppendUint32(append(b, 'x'), uint32(len(v))), v...) // #nosec G115 -- within a frame
	case amqp.Table:
		return AppendTable(append(b, 'F'), v)
	case []any:
		start := len(b) + 1
		b = append(b, 'A', 0, 0, 0, 0)
		for _, e := range v {
			b = appendField(b, e)
		}
		return withLength(b, start)
	}
	kind, n := scalar(v)
	b = append(b, kind)
	switch FixedSize(kind) {
	case 1:
		return append(b, byte(n)) // #nosec G115 -- it has one byte
	case 2:
		return be.AppendUint16(b, uint16(n)) // #nosec G115 -- it has two bytes
	case 4:
		return be.AppendUint32(b, uint32(n)) // #nosec G115 -- it has four bytes
	case 5: // a decimal: its scale, then its value
		return be.AppendUint32(append(b, byte(n>>32)), uint32(n)) // #nosec G115 -- it has five bytes
	case 8:
		return be.AppendUint64(b, n)
	}
	return b
}

// scalar returns the type byte of a value of a fixed size, and its bits; a void for any other value.
func scalar(v any) (kind byte, bits uint64) {
	switch v := v.(type) {
	case bool:
		if v {
			return 't', 1
		}
		return 't', 0
	case byte:
		return 'B', uint64(v)
	case int8:
		return 'b', uint64(v) // #nosec G115 -- its bits
	case int16:
		return 's', uint64(v) // #nosec G115 -- its bits
	case uint16:
		return 'u', uint64(v)
	case int:
		return 'I', uint64(v) // #nosec G115 -- its bits
	case int32:
		return 'I', uint64(v) // #nosec G115 -- its bits
	case uint32:
		return 'i', uint64(v)
	case int64:
		return 'l', uint64(v) // #nosec G115 -- its bits
	case float32:
		return 'f', uint64(math.Float32bits(v))
	case float64:
		return 'd', math.Float64bits(v)
	case amqp.Decimal:
		return 'D', uint64(v.Scale)<<32 | uint64(uint32(v.Value)) // #nosec G115 -- its bits
	case time.Time:
		return 'T', uint64(v.Unix()) // #nosec G115 -- its bits
	}
	return 'V', 0
}
