package amqpvalue

import (
	"bytes"
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

// AppendLine appends a message as a JSON object without a line feed. Line.Decode reads it: every property, header and
// byte of the body returns as it was. It allocates nothing but room in dst.
func AppendLine(dst []byte, exchange, routingKey string, p *amqp.Publishing) []byte {
	return append(AppendBody(AppendHead(dst, exchange, routingKey, p), p, true), '}')
}

// AppendHead appends the beginning of AppendLine's object: everything before the body. Names of headers are sorted.
func AppendHead(dst []byte, exchange, routingKey string, p *amqp.Publishing) []byte {
	dst = appendShort(append(dst, `{"exchange":`...), exchange)
	dst = appendShort(append(dst, `,"routing_key":`...), routingKey)
	for i := range properties {
		dst = properties[i].append(dst, (*Properties)(p))
	}
	if len(p.Headers) == 0 {
		return dst
	}
	dst = appendValue(append(dst, `,"headers":`...), p.Headers, 0)
	const types = `,"header_types":`
	before := len(dst)
	if dst = appendTypes(append(dst, types...), p.Headers, 0); len(dst) == before+len(types) {
		dst = dst[:before]
	}
	return dst
}

// append appends the property with its name, unless it is absent.
func (x *property) append(dst []byte, p *Properties) []byte {
	name := func() []byte { return append(append(append(dst, `,"`...), x.name...), `":`...) }
	switch field := x.field(p).(type) {
	case *string:
		if *field != "" {
			return appendShort(name(), *field)
		}
	case *uint8:
		if *field != 0 {
			return strconv.AppendUint(name(), uint64(*field), 10)
		}
	case *time.Time:
		if !field.IsZero() {
			return appendTimestamp(name(), *field)
		}
	}
	return dst
}

// AppendBody appends the body as a member of the object that AppendHead has begun. With embed a JSON body of a JSON
// content type is written as it is, if that gives the same bytes when it is read. Any other body is a string, or base64
// where it is not text or would be longer as a string.
func AppendBody(dst []byte, p *amqp.Publishing, embed bool) []byte {
	b := p.Body
	size := base64.StdEncoding.EncodedLen(len(b))
	switch {
	case !utf8.Valid(b):
	case embed && IsJSON(p.ContentType) && embeddable(b):
		return append(append(dst, `,"body":`...), b...)
	case QuotedSize(b) <= size:
		return quote(append(dst, `,"body":`...), b)
	}
	return appendBase64(append(dst, `,"body_base64":`...), b)
}

// IsJSON reports whether a content type is one of JSON. Without one a reader would add it to a body that is embedded.
func IsJSON(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	t = strings.TrimRight(t, " \t")
	return strings.EqualFold(t, "application/json") || len(t) > 5 && strings.EqualFold(t[len(t)-5:], "+json")
}

// embeddable reports whether text can be a value in a line and returns as it is: it is JSON of one line without blanks
// around it, and no string, which would be taken for a body of text.
func embeddable(text []byte) bool {
	if len(text) == 0 || text[0] <= '"' || text[len(text)-1] <= ' ' {
		return false
	}
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 || !jsontext.Value(text).IsValid(lenient...) {
		return false
	}
	// A reader bounds how deep a value is nested, and in the line it is one deeper.
	const deepest = 10_000
	return bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) < deepest ||
		jsontext.Value(slices.Concat([]byte{'['}, text, []byte{']'})).IsValid(lenient...)
}

// QuotedSize returns the length of b as a JSON string without its quotes.
func QuotedSize(b []byte) int {
	n := len(b)
	for _, c := range b {
		n += int(escape[c])
	}
	return n
}

// escape is how many bytes longer a byte is in a JSON string.
var escape = func() (more [256]uint8) {
	for c := range ' ' {
		more[c] = 5
	}
	for _, c := range "\b\t\n\f\r\"\\" {
		more[c] = 1
	}
	return more
}()

// appendValue appends a value of a header: text and bytes that are not UTF-8 in base64, and null for what AMQP does not
// have.
func appendValue(dst []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case string:
		if !utf8.ValidString(v) {
			return appendBase64(dst, []byte(v))
		}
		return quote(dst, v)
	case []byte:
		return appendBase64(dst, v)
	case amqp.Decimal:
		return fmt.Appendf(dst, `{"scale":%d,"value":%d}`, v.Scale, v.Value)
	case time.Time:
		return appendTimestamp(dst, v)
	case amqp.Table:
		if depth <= MaxDepth {
			return appendTable(dst, v, depth)
		}
	case []any:
		if depth <= MaxDepth {
			return appendList(dst, v, depth)
		}
	}
	switch x := reflect.ValueOf(v); {
	case x.CanInt():
		return strconv.AppendInt(dst, x.Int(), 10)
	case x.CanUint():
		return strconv.AppendUint(dst, x.Uint(), 10)
	case x.CanFloat() && (math.IsNaN(x.Float()) || math.IsInf(x.Float(), 0)):
		return append(appendFloat(append(dst, '"'), x.Float(), 64), '"')
	case x.CanFloat():
		return appendFloat(dst, x.Float(), x.Type().Bits())
	}
	return append(dst, "null"...)
}

func appendTable(dst []byte, t amqp.Table, depth int) []byte {
	var room [16]string
	dst = append(dst, '{')
	for i, name := range sortedNames(room[:0], t) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendValue(append(appendName(dst, name), ':'), t[name], depth+1)
	}
	return append(dst, '}')
}

func appendList(dst []byte, list []any, depth int) []byte {
	dst = append(dst, '[')
	for i, v := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendValue(dst, v, depth+1)
	}
	return append(dst, ']')
}

// base64Text is the type, in the types of a line, of a string whose value is base64 of its bytes.
const base64Text = "base64"

// appendTypes appends the types of what appendValue writes, and nothing if JSON alone gives each value its type: the
// name of a type, or for a table or a list an object or an array of the same. A name in base64 is always there, with
// null if its value needs no type.
func appendTypes(dst []byte, v any, depth int) []byte {
	switch v := v.(type) {
	case amqp.Table:
		if depth <= MaxDepth {
			return appendTypesOfTable(dst, v, depth)
		}
	case []any:
		if depth <= MaxDepth {
			return appendTypesOfList(dst, v, depth)
		}
	case string:
		if !utf8.ValidString(v) {
			return quote(dst, base64Text)
		}
	case float64:
		if v != math.Trunc(v) && !math.IsNaN(v) { // JSON has it, and it is not like an integer
			return dst
		}
		return append(dst, `"float64"`...)
	case int, int8, int16, int32, uint8, uint16, uint32, float32, []byte, amqp.Decimal, time.Time:
		return quote(dst, Typed{v}.Type())
	}
	return dst
}

func appendTypesOfTable(dst []byte, t amqp.Table, depth int) []byte {
	var room [16]string
	next := byte('{')
	for _, name := range sortedNames(room[:0], t) {
		if text, ok := t[name].(string); ok && utf8.ValidString(text) && !isCoded(name) {
			continue // as nearly all are
		}
		before := len(dst)
		dst = append(appendName(append(dst, next), name), ':')
		typed := len(dst)
		dst = appendTypes(dst, t[name], depth+1)
		switch {
		case len(dst) > typed:
		case isCoded(name):
			dst = append(dst, "null"...)
		default:
			dst = dst[:before]
			continue
		}
		next = ','
	}
	if next == '{' {
		return dst
	}
	return append(dst, '}')
}

func appendTypesOfList(dst []byte, list []any, depth int) []byte {
	start, found := len(dst), false
	next := byte('[')
	for _, v := range list {
		dst = append(dst, next)
		next = ','
		before := len(dst)
		if dst = appendTypes(dst, v, depth+1); len(dst) == before {
			dst = append(dst, "null"...)
			continue
		}
		found = true
	}
	if !found {
		return dst[:start]
	}
	return append(dst, ']')
}

// sortedNames returns the names of t in room, if it is large enough.
func sortedNames(room []string, t amqp.Table) []string {
	for name := range t {
		room = append(room, name)
	}
	slices.Sort(room)
	return room
}

func appendName(dst []byte, name string) []byte {
	if isCoded(name) {
		dst = append(append(dst, '"'), namePrefix...)
		return append(base64.StdEncoding.AppendEncode(dst, []byte(name)), '"')
	}
	return quote(dst, name)
}

func appendShort(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return quote(dst, s)
	}
	return append(appendBase64(append(dst, `{"base64":`...), []byte(s)), '}')
}

func appendTimestamp(dst []byte, t time.Time) []byte {
	if hasYear(t) {
		return append(appendTime(append(dst, '"'), t), '"')
	}
	return appendTime(dst, t)
}

func appendBase64(dst, b []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(dst, '"'), b), '"')
}

// quote appends text, which is UTF-8, as a JSON string.
func quote[T string | []byte](dst []byte, text T) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
