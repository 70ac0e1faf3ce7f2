package amqpvalue

import (
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Text returns v for people to read, as AppendText has it; bytes of a string that are not UTF-8 become U+FFFD.
func Text(v any) string {
	b, ok := AppendText(nil, v, math.MaxInt)
	if !ok {
		return fmt.Sprint(v)
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

// AppendText appends v to dst: a scalar as text, a table or an array as plain JSON with sorted keys, bytes as they are
// if they are UTF-8 and in base64 otherwise, nothing for void. ok is false, after little more than limit bytes of work,
// if the text has more than limit bytes, is nested deeper than MaxDepth or holds a type that AMQP does not have.
func AppendText(dst []byte, v any, limit int) (text []byte, ok bool) {
	w := jsonWriter{out: dst, start: len(dst), limit: limit}
	switch v := v.(type) {
	case nil:
		return dst, true
	case string:
		return append(dst, v[:min(len(v), limit)]...), len(v) <= limit
	case []byte:
		if len(v) > limit || utf8.Valid(v) {
			return append(dst, v[:min(len(v), limit)]...), len(v) <= limit
		}
		return base64.StdEncoding.AppendEncode(dst, v), true
	case amqp.Table, []any:
		ok = w.value(v, 0)
	default:
		ok = w.scalar(v)
	}
	return w.out, ok
}

// appendFloat writes the shortest text that reads back as f, in JSON's notation.
func appendFloat(dst []byte, f float64, bits int) []byte {
	switch {
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
	dst = fmt.Appendf(dst, "%0*d", int(d.Scale)+1, n) // a digit in front of the point at least
	if d.Scale > 0 {
		dst = slices.Insert(dst, len(dst)-int(d.Scale), '.')
	}
	return dst
}

// appendTime writes RFC 3339 in UTC, or seconds since 1970 for a year that RFC 3339 has no room for.
func appendTime(dst []byte, t time.Time) []byte {
	if !hasYear(t) {
		return strconv.AppendInt(dst, t.Unix(), 10)
	}
	return t.UTC().AppendFormat(dst, time.RFC3339)
}

// hasYear reports whether t is in the years 0 to 9999. time.Time.Year overflows for the largest times.
func hasYear(t time.Time) bool { return t.Unix() >= -62167219200 && t.Unix() < 253402300800 }

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// quote appends text as a JSON string.
func quote[T string | []byte](dst []byte, text T) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
