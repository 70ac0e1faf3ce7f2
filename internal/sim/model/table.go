package model

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Table is an AMQP table: values are bool, the integers, float32, float64, string, []byte, time.Time, Decimal, nil,
// Table and []any.
type Table map[string]any

// Decimal is an AMQP decimal.
type Decimal struct {
	Scale uint8
	Value int32
}

// reader takes arguments off a payload. After the first field that is not there everything is zero and ok is false.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.bad, r.b = true, nil
		return make([]byte, min(max(n, 0), 8))
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) u8() byte      { return r.take(1)[0] }
func (r *reader) u16() uint16   { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u32() uint32   { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) u64() uint64   { return binary.BigEndian.Uint64(r.take(8)) }
func (r *reader) short() string { return r.text(int(r.u8())) }
func (r *reader) long() string  { return r.text(int(r.u32())) }

func (r *reader) text(n int) string {
	b := r.take(n)
	if r.bad {
		return ""
	}
	return string(b)
}

func (r *reader) table() Table {
	in := reader{b: []byte(r.long())}
	t := Table{}
	for len(in.b) > 0 {
		k := in.short()
		t[k] = in.value()
	}
	r.bad = r.bad || in.bad
	return t
}

func (r *reader) array() []any {
	in := reader{b: []byte(r.long())}
	var a []any
	for len(in.b) > 0 {
		a = append(a, in.value())
	}
	r.bad = r.bad || in.bad
	return a
}

func (r *reader) value() any {
	switch kind := r.u8(); kind {
	case 't':
		return r.u8() != 0
	case 'b':
		return int8(r.u8())
	case 'B':
		return r.u8()
	case 's':
		return int16(r.u16())
	case 'u':
		return r.u16()
	case 'I':
		return int32(r.u32())
	case 'i':
		return r.u32()
	case 'l', 'L':
		return int64(r.u64())
	case 'f':
		return math.Float32frombits(r.u32())
	case 'd':
		return math.Float64frombits(r.u64())
	case 'D':
		return Decimal{r.u8(), int32(r.u32())}
	case 'S':
		return r.long()
	case 'x':
		return []byte(r.long())
	case 'T':
		return time.Unix(int64(r.u64()), 0).UTC()
	case 'F':
		return r.table()
	case 'A':
		return r.array()
	case 'V':
		return nil
	}
	r.bad, r.b = true, nil
	return nil
}

func appendShort(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

func appendLong[T string | []byte](b []byte, s T) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}

func appendTable(b []byte, t Table) []byte {
	at := len(b)
	b = append(b, 0, 0, 0, 0)
	for _, k := range slices.Sorted(maps.Keys(t)) {
		b = appendValue(appendShort(b, k), t[k])
	}
	binary.BigEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return b
}

func appendValue(b []byte, v any) []byte {
	order := binary.BigEndian
	switch v := v.(type) {
	case nil:
		return append(b, 'V')
	case bool:
		if v {
			return append(b, 't', 1)
		}
		return append(b, 't', 0)
	case int8:
		return append(b, 'b', byte(v))
	case uint8:
		return append(b, 'B', v)
	case int16:
		return order.AppendUint16(append(b, 's'), uint16(v))
	case uint16:
		return order.AppendUint16(append(b, 'u'), v)
	case int32:
		return order.AppendUint32(append(b, 'I'), uint32(v))
	case uint32:
		return order.AppendUint32(append(b, 'i'), v)
	case int64:
		return order.AppendUint64(append(b, 'l'), uint64(v))
	case float32:
		return order.AppendUint32(append(b, 'f'), math.Float32bits(v))
	case float64:
		return order.AppendUint64(append(b, 'd'), math.Float64bits(v))
	case Decimal:
		return order.AppendUint32(append(b, 'D', v.Scale), uint32(v.Value))
	case string:
		return appendLong(append(b, 'S'), v)
	case []byte:
		return appendLong(append(b, 'x'), v)
	case time.Time:
		return order.AppendUint64(append(b, 'T'), uint64(v.Unix()))
	case Table:
		return appendTable(append(b, 'F'), v)
	case []any:
		b = append(b, 'A')
		at := len(b)
		b = append(b, 0, 0, 0, 0)
		for _, e := range v {
			b = appendValue(b, e)
		}
		order.PutUint32(b[at:], uint32(len(b)-at-4))
		return b
	}
	panic(fmt.Sprintf("model: %T is no AMQP value", v))
}
