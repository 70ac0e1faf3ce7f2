package amqpvalue

import (
	"encoding/base64"
	"fmt"
	"math"
	"reflect"
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

// form is what a jsonWriter writes of a value.
type form int

const (
	plainForm form = iota // for people and apps: bytes are text where they can be
	exactForm             // what Line reads with the types: base64 where it is not text, null for what AMQP does not have
	typesForm             // the types of exact values, see typeOf; nothing for a value, table or array that needs none
)

// jsonWriter writes JSON with sorted names.
type jsonWriter struct {
	out   []byte
	start int
	limit int // bytes behind start
	form  form
}

func (w *jsonWriter) full() bool { return len(w.out)-w.start > w.limit }

func (w *jsonWriter) value(v any, depth int) bool {
	t, isTable := v.(amqp.Table)
	list, isList := v.([]any)
	switch {
	case w.full():
		return false
	case isTable && depth <= MaxDepth:
		return w.table(t, depth)
	case isList && depth <= MaxDepth:
		return w.array(list, depth)
	case w.form == exactForm:
		w.exact(v)
	case w.form == typesForm:
		w.typeOf(v)
	default:
		return w.plain(v)
	}
	return true
}

func (w *jsonWriter) plain(v any) bool {
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
		return true
	case string:
		w.quoted(v)
		return true
	case []byte:
		if !utf8.Valid(v) {
			v = base64.StdEncoding.AppendEncode(nil, v[:min(len(v), w.limit)])
		}
		w.quoted(string(v))
		return true
	}
	start := len(w.out)
	ok := w.scalar(v)
	if ok && strings.IndexByte("ZNy", w.out[len(w.out)-1]) >= 0 { // a time, NaN or Infinity, which JSON does not have
		w.out = append(slices.Insert(w.out, start, '"'), '"')
	}
	return ok
}

func (w *jsonWriter) table(t amqp.Table, depth int) bool {
	// Every member takes at least five bytes: a table of more is too long already, and not worth sorting.
	if len(t) > w.limit/5 {
		return false
	}
	var room [16]string
	start := len(w.out)
	w.out = append(w.out, '{')
	for _, k := range sortedNames(room[:0], t) {
		before := len(w.out)
		if before > start+1 {
			w.out = append(w.out, ',')
		}
		w.name(k)
		w.out = append(w.out, ':')
		empty := len(w.out)
		switch {
		case !w.value(t[k], depth+1):
			return false
		case len(w.out) > empty:
		case isCoded(k): // it has to be there, so that its name is decoded
			w.out = append(w.out, "null"...)
		default:
			w.out = w.out[:before]
		}
	}
	if w.form == typesForm && len(w.out) == start+1 {
		w.out = w.out[:start]
		return true
	}
	w.out = append(w.out, '}')
	return !w.full()
}

func (w *jsonWriter) array(a []any, depth int) bool {
	start, found := len(w.out), w.form != typesForm
	w.out = append(w.out, '[')
	for i, v := range a {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		empty := len(w.out)
		if !w.value(v, depth+1) {
			return false
		}
		if len(w.out) == empty {
			w.out = append(w.out, "null"...)
		} else {
			found = true
		}
	}
	if !found {
		w.out = w.out[:start]
		return true
	}
	w.out = append(w.out, ']')
	return !w.full()
}

// sortedNames returns the names of t in room, if it is large enough.
func sortedNames(room []string, t amqp.Table) []string {
	for name := range t {
		room = append(room, name)
	}
	slices.Sort(room)
	return room
}

// quoted writes a JSON string; bytes that are not UTF-8 become U+FFFD. A text that alone is over the limit is cut.
func (w *jsonWriter) quoted(s string) {
	w.out, _ = jsontext.AppendQuote(w.out, s[:min(len(s), w.limit)])
}

// scalar writes a number, a truth value or a time. It returns false for any other type.
func (w *jsonWriter) scalar(v any) bool {
	switch v := v.(type) {
	case amqp.Decimal:
		w.out = appendDecimal(w.out, v)
		return true
	case time.Time:
		w.out = appendTime(w.out, v)
		return true
	}
	switch v := reflect.ValueOf(v); {
	case v.CanInt():
		w.out = strconv.AppendInt(w.out, v.Int(), 10)
	case v.CanUint():
		w.out = strconv.AppendUint(w.out, v.Uint(), 10)
	case v.CanFloat():
		w.out = appendFloat(w.out, v.Float(), v.Type().Bits())
	case v.Kind() == reflect.Bool:
		w.out = strconv.AppendBool(w.out, v.Bool())
	default:
		return false
	}
	return true
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
