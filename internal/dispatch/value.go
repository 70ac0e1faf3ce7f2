package dispatch

import (
	"encoding/base64"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// appendAny appends the header value v: text for scalars, JSON for tables and arrays, bytes as text if they are UTF-8
// and in base64 otherwise, nothing for void. It is total: false means that v cannot be said within the limit.
func (r *request) appendAny(v any, e *escapes) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return r.appendText(v, e)
	case []byte:
		return r.appendBytes(v, e)
	case amqp.Table, []any:
		var ok bool
		r.json, ok = appendJSON(r.json[:0], v, 0)
		if ok {
			r.out = appendEscaped(r.out, r.json, e)
		}
		return ok
	}
	var ok bool
	var text [320]byte
	b, ok := appendScalar(text[:0], v)
	r.out = appendEscaped(r.out, b, e)
	return ok
}

func (r *request) appendText(v string, e *escapes) bool {
	if len(v) > maxValue {
		return false
	}
	r.out = appendEscaped(r.out, v, e)
	return true
}

func (r *request) appendBytes(v []byte, e *escapes) bool {
	if len(v) > maxValue {
		return false
	}
	if utf8.Valid(v) {
		r.out = appendEscaped(r.out, v, e)
	} else {
		r.out = base64.StdEncoding.AppendEncode(r.out, v)
	}
	return true
}

// appendScalar appends every AMQP field that is one number, truth value or time.
func appendScalar(dst []byte, v any) ([]byte, bool) {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v), true
	case int8:
		return strconv.AppendInt(dst, int64(v), 10), true
	case int16:
		return strconv.AppendInt(dst, int64(v), 10), true
	case int32:
		return strconv.AppendInt(dst, int64(v), 10), true
	case int64:
		return strconv.AppendInt(dst, v, 10), true
	case int:
		return strconv.AppendInt(dst, int64(v), 10), true
	case uint8:
		return strconv.AppendUint(dst, uint64(v), 10), true
	case uint16:
		return strconv.AppendUint(dst, uint64(v), 10), true
	case uint32:
		return strconv.AppendUint(dst, uint64(v), 10), true
	case uint64:
		return strconv.AppendUint(dst, v, 10), true
	case float32:
		return appendFloat(dst, float64(v), 32), true
	case float64:
		return appendFloat(dst, v, 64), true
	case amqp.Decimal:
		return appendDecimal(dst, v), true
	case time.Time:
		return appendTime(dst, v), true
	}
	return dst, false
}

// appendFloat writes the shortest text that reads back as f, in JSON's notation.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...)
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...)
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...)
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 && (abs < 1e-6 || abs >= 1e21) {
		format = 'e'
	}
	return strconv.AppendFloat(dst, f, format, -1, bits)
}

// appendDecimal writes Value × 10^-Scale in plain digits: {2, 12345} is 123.45.
func appendDecimal(dst []byte, d amqp.Decimal) []byte {
	n := int64(d.Value)
	if n < 0 {
		dst = append(dst, '-')
		n = -n
	}
	var buf [10]byte
	digits := strconv.AppendInt(buf[:0], n, 10)
	scale := int(d.Scale)
	if whole := len(digits) - scale; whole > 0 {
		dst = append(dst, digits[:whole]...)
		digits = digits[whole:]
	} else {
		dst = append(dst, '0')
	}
	if scale == 0 {
		return dst
	}
	dst = append(dst, '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// appendTime writes RFC 3339 in UTC, or seconds since 1970 for a year that RFC 3339 has no room for.
func appendTime(dst []byte, t time.Time) []byte {
	if t = t.UTC(); !sayable(t) {
		return strconv.AppendInt(dst, t.Unix(), 10)
	}
	return t.AppendFormat(dst, time.RFC3339)
}
