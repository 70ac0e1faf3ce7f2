package amqpvalue

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// ErrInvalid is returned for a value that the client library refuses only after it has begun to write the message,
// which costs the whole connection.
var ErrInvalid = errors.New("not a valid AMQP value")

// TableSize returns the number of bytes of t in a frame, its own length prefix included. It returns ErrInvalid for a
// name longer than ShortMax and for a value of a type that AMQP does not have.
func TableSize(t amqp.Table) (int, error) {
	size := 4
	for k, v := range t {
		if len(k) > ShortMax {
			return 0, fmt.Errorf("%w: header name of %d bytes", ErrInvalid, len(k))
		}
		n, err := fieldSize(v)
		if err != nil {
			return 0, fmt.Errorf("header %q: %w", k, err)
		}
		size += 1 + len(k) + n
	}
	return size, nil
}

// fieldSize returns the size of a value with its type byte.
func fieldSize(v any) (int, error) {
	switch v := v.(type) {
	case nil:
		return 1, nil
	case bool, byte, int8:
		return 2, nil
	case int16, uint16:
		return 3, nil
	case int, int32, uint32, float32:
		return 5, nil
	case amqp.Decimal:
		return 6, nil
	case int64, float64, time.Time:
		return 9, nil
	case string:
		return 5 + len(v), nil
	case []byte:
		return 5 + len(v), nil
	case amqp.Table:
		n, err := TableSize(v)
		return 1 + n, err
	case []any:
		size := 5
		for _, e := range v {
			n, err := fieldSize(e)
			if err != nil {
				return 0, err
			}
			size += n
		}
		return size, nil
	}
	return 0, fmt.Errorf("%w: type %T", ErrInvalid, v)
}

// Count returns v as a count, clamped to 2^31-1. ok is false if v is not an integer or is negative.
func Count(v any) (n int, ok bool) {
	switch v := reflect.ValueOf(v); {
	case v.CanInt() && v.Int() >= 0:
		return int(min(v.Int(), math.MaxInt32)), true
	case v.CanUint():
		return int(min(v.Uint(), math.MaxInt32)), true // #nosec G115 -- clamped
	}
	return 0, false
}

// Decode reads the entries of a header table, without its length prefix, into the types that the client library uses.
// whole is false when an entry is malformed. All names and texts share one copy of the bytes.
func Decode(entries []byte) (t amqp.Table, whole bool) {
	r := wireReader{rest: string(entries)}
	t = r.table(len(entries), 0)
	return t, !r.bad
}

// wireReader reads fields off a header table. The first field that does not fit sets bad, and every later read is zero.
type wireReader struct {
	rest string
	bad  bool
}

// text returns the next n bytes.
func (r *wireReader) text(n int) string {
	if n > len(r.rest) {
		r.bad, r.rest = true, ""
		return ""
	}
	s := r.rest[:n]
	r.rest = r.rest[n:]
	return s
}

// number reads a big-endian number of n bytes.
func (r *wireReader) number(n int) (v uint64) {
	s := r.text(n)
	for i := range len(s) {
		v = v<<8 | uint64(s[i])
	}
	return v
}

// size reads the length of a text or a container, which must fit what is left.
func (r *wireReader) size() int {
	n := r.number(4)
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, ""
		return 0
	}
	return int(n) // #nosec G115 -- at most len(r.rest)
}

// table reads the next n bytes, of which there are as many.
func (r *wireReader) table(n, depth int) amqp.Table {
	r.bad = r.bad || depth > MaxDepth
	t := make(amqp.Table, r.count(n))
	for end := len(r.rest) - n; len(r.rest) > end && !r.bad; {
		name := r.text(int(r.number(1))) // #nosec G115 -- one byte
		t[name] = r.value(depth)
		r.bad = r.bad || len(r.rest) < end || len(t) > MaxElements
	}
	return t
}

// sizes are those of the values of fixed size, in bytes, by type byte.
var sizes = [256]uint8{
	't': 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, 'f': 4, 'D': 5, 'l': 8, 'd': 8, 'T': 8,
}

// FixedSize returns the number of bytes of a value with this type byte, 0 if that is not the same for all values.
func FixedSize(kind byte) int { return int(sizes[kind]) }

// count returns how many entries the next n bytes have, at most 64, to make room for them; it may be wrong.
func (r *wireReader) count(n int) (entries int) {
	for c := (wireReader{rest: r.rest[:n]}); c.rest != "" && entries < 64; entries++ {
		c.text(int(c.number(1))) // #nosec G115 -- one byte
		if kind := c.number(1); kind == 'S' || kind == 'x' || kind == 'A' || kind == 'F' {
			c.text(c.size())
		} else {
			c.text(int(sizes[kind]))
		}
	}
	return entries
}

func (r *wireReader) array(n, depth int) []any {
	r.bad = r.bad || depth > MaxDepth
	var a []any
	for end := len(r.rest) - n; len(r.rest) > end && !r.bad; {
		a = append(a, r.value(depth))
		r.bad = r.bad || len(r.rest) < end || len(a) > MaxElements
	}
	return a
}

// value reads one value, its type byte first. depth is that of the container around it.
func (r *wireReader) value(depth int) any {
	switch kind := r.number(1); kind {
	case 'S':
		return r.text(r.size())
	case 'x':
		return []byte(r.text(r.size()))
	case 'A':
		return r.array(r.size(), depth+1)
	case 'F':
		return r.table(r.size(), depth+1)
	default:
		return r.fixed(kind)
	}
}

// fixed reads a value of a type that has values of one size only.
//
//nolint:gosec // every conversion keeps the bits of a number that was read with as many
func (r *wireReader) fixed(kind uint64) any {
	switch kind {
	case 't':
		return r.number(1) != 0
	case 'B':
		return uint8(r.number(1))
	case 'b':
		return int8(r.number(1))
	case 's':
		return int16(r.number(2))
	case 'u':
		return uint16(r.number(2))
	case 'I':
		return int32(r.number(4))
	case 'i':
		return uint32(r.number(4))
	case 'l':
		return int64(r.number(8))
	case 'f':
		return math.Float32frombits(uint32(r.number(4)))
	case 'd':
		return math.Float64frombits(r.number(8))
	case 'D':
		return amqp.Decimal{Scale: uint8(r.number(1)), Value: int32(r.number(4))}
	case 'T':
		return time.Unix(int64(r.number(8)), 0)
	case 'V':
		return nil
	}
	r.bad = true
	return nil
}
