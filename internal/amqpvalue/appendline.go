package amqpvalue

import (
	"bytes"
	"math"
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
	w := jsonWriter{out: append(dst, `,"headers":`...), limit: math.MaxInt, form: exactForm}
	w.value(p.Headers, 0)
	before := len(w.out)
	w.out, w.form = append(w.out, `,"header_types":`...), typesForm
	empty := len(w.out)
	if w.value(p.Headers, 0); len(w.out) == empty {
		w.out = w.out[:before]
	}
	return w.out
}

// append appends the property with its name as a member of an object, unless it is absent.
func (x *property) append(dst []byte, p *Properties) []byte {
	start := len(dst)
	if dst[start-1] != '{' {
		dst = append(dst, ',')
	}
	dst = append(quote(dst, x.name), ':')
	switch field := x.field(p).(type) {
	case *string:
		if *field != "" {
			return appendShort(dst, *field)
		}
	case *uint8:
		if *field != 0 {
			return strconv.AppendUint(dst, uint64(*field), 10)
		}
	case *time.Time:
		switch {
		case field.IsZero():
		case hasYear(*field):
			return append(appendTime(append(dst, '"'), *field), '"')
		default:
			return appendTime(dst, *field)
		}
	}
	return dst[:start]
}

// AppendBody appends the body as a member of the object that AppendHead has begun. With embed a JSON body of a JSON
// content type is written as it is, if that gives the same bytes when it is read. Other text is a string, and anything
// else base64.
func AppendBody(dst []byte, p *amqp.Publishing, embed bool) []byte {
	b := p.Body
	switch {
	case embed && IsJSON(p.ContentType) && embeddable(b):
		return append(append(dst, `,"body":`...), b...)
	case IsText(b):
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

// IsJSONLines reports whether a content type is one of JSON Lines, under any of its usual names.
func IsJSONLines(contentType string) bool {
	t, _, _ := strings.Cut(strings.ToLower(contentType), ";")
	kind, name, _ := strings.Cut(strings.TrimRight(t, " \t"), "/")
	switch strings.TrimPrefix(name, "x-") {
	case "jsonl", "jsonlines", "json-lines", "ndjson", "ldjson":
		return kind == "application" || kind == "text"
	}
	return false
}

// embeddable reports whether text can be a value in a line and returns as it is: it is JSON of one line without blanks
// around it, and no string, which would be taken for a body of text.
func embeddable(text []byte) bool {
	if len(text) == 0 || text[0] <= '"' || text[len(text)-1] <= ' ' || !utf8.Valid(text) {
		return false
	}
	if bytes.IndexByte(text, '\n') >= 0 || bytes.IndexByte(text, '\r') >= 0 || !jsontext.Value(text).IsValid(Lenient...) {
		return false
	}
	// A reader bounds how deep a value is nested, and in the line it is one deeper.
	const deepest = 10_000
	return bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) < deepest ||
		jsontext.Value(slices.Concat([]byte{'['}, text, []byte{']'})).IsValid(Lenient...)
}

// IsText reports whether b is text that as a JSON string is at most twice as long: UTF-8 without control characters
// that need \u00XX.
func IsText(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\b' && c != '\t' && c != '\n' && c != '\f' && c != '\r' {
			return false
		}
	}
	return utf8.Valid(b)
}

// base64Text is the type of a string whose value is base64 of its bytes.
const base64Text = "base64"

func appendShort(dst []byte, s string) []byte {
	if utf8.ValidString(s) {
		return quote(dst, s)
	}
	return append(appendBase64(append(dst, `{"base64":`...), []byte(s)), '}')
}
