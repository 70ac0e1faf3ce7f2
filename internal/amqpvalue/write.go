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

	amqp "github.com/rabbitmq/amqp091-go"
)

// form is what a jsonWriter writes of a value.
type form int

const (
	plainForm form = iota // for people and apps: bytes are text where they can be
	exactForm             // what Line reads with the types: base64 where it is not text, null for what AMQP does not have
	typesForm             // the types of exact values, see typeOf; nothing for a value, table or array that needs none
	typedForm             // each value in an object that names its type, see TypedTable
)

// jsonWriter writes JSON with sorted names.
type jsonWriter struct {
	out   []byte
	start int
	limit int // bytes behind start
	form  form
}

func (w *jsonWriter) full() bool { return len(w.out)-w.start > w.limit }

// value writes a value. It returns false for one that AppendText gives up.
func (w *jsonWriter) value(v any, depth int) bool {
	switch {
	case w.full():
		return false
	case w.form == typedForm:
		w.typed(v, depth)
		return true
	}
	t, isTable := v.(amqp.Table)
	list, isList := v.([]any)
	switch {
	case isTable && depth <= MaxDepth:
		return w.table(t, depth)
	case isList && depth <= MaxDepth:
		return w.array(list, depth)
	case w.form == typesForm:
		w.typeOf(v)
		return true
	case w.single(v):
		return true
	case w.form == exactForm:
		w.out = append(w.out, "null"...)
		return true
	}
	return false
}

// single writes a value that is not a table or an array. It returns false for any type that AMQP does not have.
func (w *jsonWriter) single(v any) bool {
	start := len(w.out)
	switch v := v.(type) {
	case nil:
		w.out = append(w.out, "null"...)
		return true
	case string:
		if w.form == plainForm || utf8.ValidString(v) {
			w.quoted(v)
		} else {
			w.out = appendBase64(w.out, []byte(v))
		}
		return true
	case []byte:
		if w.form == plainForm && utf8.Valid(v) {
			w.quoted(string(v))
		} else {
			w.out = appendBase64(w.out, v[:min(len(v), w.limit)])
		}
		return true
	case amqp.Decimal:
		if w.form != plainForm {
			w.out = fmt.Appendf(w.out, `{"scale":%d,"value":%d}`, v.Scale, v.Value)
			return true
		}
	}
	ok := w.scalar(v)
	if ok && strings.IndexByte("ZNy", w.out[len(w.out)-1]) >= 0 { // a time, NaN or Infinity, which JSON does not have
		w.out = append(slices.Insert(w.out, start, '"'), '"')
	}
	return ok
}

// typeOf writes the name of a value's type if JSON alone would be read as another one.
func (w *jsonWriter) typeOf(v any) {
	switch v := v.(type) {
	case string:
		if !utf8.ValidString(v) {
			w.quoted(base64Text)
		}
	case float64:
		if v == math.Trunc(v) || math.IsNaN(v) { // like an integer, or not a number
			w.quoted(TypeOf(v))
		}
	case int, int8, int16, int32, uint8, uint16, uint32, float32, []byte, amqp.Decimal, time.Time:
		w.quoted(TypeOf(v))
	}
}

// typed writes a value with its type. Integers that some JSON readers would not keep exactly are text.
func (w *jsonWriter) typed(v any, depth int) {
	w.out = append(append(w.out, `{"type":"`...), TypeOf(v)...)
	text, isText := v.(string)
	switch {
	case v == nil:
		w.out = append(w.out, `"}`...)
		return
	case isText && !utf8.ValidString(text):
		w.out = append(w.out, `","base64":`...)
	default:
		w.out = append(w.out, `","value":`...)
	}
	if at, isTime := v.(time.Time); isTime {
		v = at.Unix()
	}
	switch v := v.(type) {
	case amqp.Table:
		w.table(v, depth)
	case []any:
		w.array(v, depth)
	case int64:
		if v > maxExact || v < -maxExact {
			w.quoted(strconv.FormatInt(v, 10))
		} else {
			w.out = strconv.AppendInt(w.out, v, 10)
		}
	default:
		w.single(v)
	}
	w.out = append(w.out, '}')
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
	return w.close(start, '}', len(w.out) > start+1)
}

func (w *jsonWriter) array(a []any, depth int) bool {
	start, found := len(w.out), false
	w.out = append(w.out, '[')
	for i, v := range a {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		empty := len(w.out)
		if !w.value(v, depth+1) {
			return false
		}
		if len(w.out) > empty {
			found = true
		} else {
			w.out = append(w.out, "null"...)
		}
	}
	return w.close(start, ']', found)
}

// close ends the table or array that begins at start. Without anything in it the types have no need of it.
func (w *jsonWriter) close(start int, end byte, found bool) bool {
	if w.form == typesForm && !found {
		w.out = w.out[:start]
		return true
	}
	w.out = append(w.out, end)
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

// name writes the name of a header; in plain text bytes that are not UTF-8 become U+FFFD.
func (w *jsonWriter) name(name string) {
	if w.form == plainForm || !isCoded(name) {
		w.quoted(name)
		return
	}
	w.out = append(append(w.out, '"'), namePrefix...)
	w.out = append(base64.StdEncoding.AppendEncode(w.out, []byte(name)), '"')
}

// quoted writes a JSON string; bytes that are not UTF-8 become U+FFFD. A text that alone is over the limit is cut.
func (w *jsonWriter) quoted(s string) { w.out = quote(w.out, s[:min(len(s), w.limit)]) }

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
