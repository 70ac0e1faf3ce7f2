package model

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Table is an AMQP table, of the types that the client library, the sidecar and brokers send: bool, int32, int64,
// string, time.Time, nil, Table and []any.
type Table map[string]any

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
	case 'I':
		return int32(r.u32())
	case 'l', 'L':
		return int64(r.u64())
	case 'S':
		return r.long()
	case 'T':
		return time.Unix(int64(r.u64()), 0).UTC()
	case 'F':
		return r.table()
	case 'A':
		return r.array()
	case 'V':
		return nil
	}
	r.bad, r.b = true, nil // of a type that nothing here sends
	return nil
}

func appendShort(b []byte, s string) []byte {
	s = s[:min(len(s), 255)]
	return append(append(b, byte(len(s))), s...)
}

func appendLong(b []byte, s string) []byte {
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
		return append(b, 't', bit(v))
	case int32:
		return order.AppendUint32(append(b, 'I'), uint32(v))
	case int64:
		return order.AppendUint64(append(b, 'l'), uint64(v))
	case string:
		return appendLong(append(b, 'S'), v)
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
	panic(fmt.Sprintf("model: %T is none of the types of a Table", v))
}

// Properties of a message; a zero value is an absent one.
type Properties struct {
	ContentType, ContentEncoding                                       string
	Headers                                                            Table
	DeliveryMode, Priority                                             uint8
	CorrelationID, ReplyTo, Expiration, MessageID, Type, UserID, AppID string
	Timestamp                                                          uint64 // seconds since 1970
	ClusterID                                                          string
}

// fields are the properties in the order of their flags, the highest one first, and of their values.
func (p *Properties) fields() []any {
	return []any{
		&p.ContentType, &p.ContentEncoding, &p.Headers, &p.DeliveryMode, &p.Priority, &p.CorrelationID, &p.ReplyTo,
		&p.Expiration, &p.MessageID, &p.Timestamp, &p.Type, &p.UserID, &p.AppID, &p.ClusterID,
	}
}

func flagOf(field int) uint16 { return 1 << (15 - field) }

func (r *reader) properties() (p Properties) {
	flags := r.u16()
	for i, field := range p.fields() {
		if flags&flagOf(i) == 0 {
			continue
		}
		switch to := field.(type) {
		case *string:
			*to = r.short()
		case *Table:
			*to = r.table()
		case *uint8:
			*to = r.u8()
		case *uint64:
			*to = r.u64()
		}
	}
	return p
}

// appendContent appends the payload of a content header.
func appendContent(b []byte, p *Properties, size int) []byte {
	b = binary.BigEndian.AppendUint64(append(b, 0, 60, 0, 0), uint64(size))
	var flags uint16
	var values []byte
	for i, field := range p.fields() {
		before := len(values)
		values = appendProperty(values, field)
		if len(values) > before {
			flags |= flagOf(i)
		}
	}
	return append(binary.BigEndian.AppendUint16(b, flags), values...)
}

// appendProperty appends nothing for a property that is absent.
func appendProperty(b []byte, field any) []byte {
	switch v := field.(type) {
	case *string:
		if *v != "" {
			return appendShort(b, *v)
		}
	case *Table:
		if len(*v) > 0 {
			return appendTable(b, *v)
		}
	case *uint8:
		if *v != 0 {
			return append(b, *v)
		}
	case *uint64:
		if *v != 0 {
			return binary.BigEndian.AppendUint64(b, *v)
		}
	}
	return b
}
