package amqpvalue

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Line is a message as one JSON object: the form of batches, of exports and of what /publish:batch takes.
type Line struct {
	Exchange   *string // nil if absent
	RoutingKey string
	Msg        amqp.Publishing // without headers, and without a body that is in base64
	Base64     []byte          // the body in base64; without any body this and Msg.Body are nil
	Invalid    error           // of the first property that is invalid

	headers, types []byte // JSON
	body           []byte // JSON
	typed, keyed   bool   // there is a content type, there is a routing key
}

// Decode reads exactly one JSON object in which every field is known and there once: the value of any other would be
// lost. Package json would accept names in any case, use the last of several values, and null for an object. The values
// of ignored fields and of delivery are not read. The body may become a part of the line, which is changed where a
// string in it has escapes.
func (l *Line) Decode(line []byte, ignored ...string) error {
	if !utf8.Valid(line) {
		return errors.New("the line is not UTF-8; bytes are for body_base64")
	}
	if l.decodePlain(line, ignored) {
		return nil
	}
	*l = Line{}
	return l.decode(line, ignored)
}

// decode is Decode for any line that is UTF-8.
func (l *Line) decode(line []byte, ignored []string) error {
	d, err := DecodeJSON(line)
	if err != nil {
		return fmt.Errorf("the line is not a JSON object of a message: %w", err)
	}
	if t, _ := d.ReadToken(); t.Kind() != '{' {
		return errors.New("the line is not a JSON object of a message")
	}
	seen := map[string]bool{}
	for d.PeekKind() != '}' {
		quoted, _ := d.ReadValue()
		if len(quoted) > maxQuoted {
			return fmt.Errorf("there is no field %.100s", quoted)
		}
		name := unquote(quoted)
		if seen[name] {
			return fmt.Errorf("the field %s is there twice", name)
		}
		seen[name] = true
		value, _ := d.ReadValue() // belongs to d; the line is ours
		end := d.InputOffset()
		if name == "delivery" || slices.Contains(ignored, name) {
			continue
		}
		if err := l.set(name, line[end-int64(len(value)):end:end]); err != nil {
			return err
		}
	}
	if !l.keyed {
		return errors.New("there is no routing_key; it may be empty")
	}
	return l.readBody()
}

// maxQuoted is the longest JSON of a short string, in bytes: each byte of it may be written as \u00XX.
const maxQuoted = 6*ShortMax + 2

// set reads a field. Body and headers, which may be large, stay in the line; all other fields are short.
func (l *Line) set(name string, value jsontext.Value) error {
	// A body that is not a string is published as its JSON text.
	if (name != "body" || value[0] == '"') && !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		return fmt.Errorf("the field %s holds half of a surrogate pair, which is not text", name)
	}
	switch name {
	case "body":
		l.body = value
		return nil
	case "body_base64":
		if string(value) != "null" {
			l.Base64 = value
		}
		return nil
	case "headers":
		l.headers = value
		return nil
	case "header_types":
		l.types = value
		return nil
	}
	return l.setShort(name, value)
}

// setShort reads a field whose value, as text, fits a short string.
func (l *Line) setShort(name string, value jsontext.Value) error {
	if len(value) > maxQuoted {
		return fmt.Errorf("the field %.100s has %d bytes of JSON; AMQP allows %d bytes", name, len(value), ShortMax)
	}
	v, err := ParseValue(value)
	if err != nil {
		return fmt.Errorf("the field %.100s cannot be read: %w", name, err)
	}
	return l.setValue(name, v)
}

// setValue sets a property, the exchange or the routing key. v is as ParseValue returns it.
func (l *Line) setValue(name string, v any) (err error) {
	switch {
	case indexOf(name) >= 0:
		l.typed = l.typed || name == "content_type" && v != nil
		if err := SetProperty(&l.Msg, name, v); err != nil && l.Invalid == nil {
			l.Invalid = fmt.Errorf("%s %w", name, err)
		}
	case name != "exchange" && name != "routing_key":
		return fmt.Errorf("there is no field %.100q; there are routing_key, exchange, body, body_base64, headers, "+
			"header_types and the properties, such as message_id and content_type", name)
	case v == nil: // as if it were absent
	case name == "exchange":
		l.Exchange = new(string)
		err = setText(l.Exchange, v)
	default:
		l.keyed = true
		err = setText(&l.RoutingKey, v)
	}
	if err != nil {
		return fmt.Errorf("the field %.100s %w", name, err)
	}
	return nil
}

// readBody sets the body of the message, or Base64.
func (l *Line) readBody() error {
	switch {
	case l.Base64 != nil && l.body != nil:
		return errors.New("there are body and body_base64; one of them is enough")
	case l.Base64 != nil && l.Base64[0] != '"':
		return errors.New("the field body_base64 is not a string")
	case l.Base64 != nil:
		l.Base64 = unescapeJSON(l.Base64)
	case len(l.body) > 0 && l.body[0] == '"':
		l.Msg.Body = unescapeJSON(l.body)
	case l.body != nil:
		l.setJSONBody(l.body)
	}
	return nil
}

func (l *Line) setJSONBody(text []byte) {
	l.Msg.Body = text
	if !l.typed {
		l.Msg.ContentType = "application/json"
	}
}

// HeadersCost returns how many bytes of memory Headers takes at most.
func (l *Line) HeadersCost() int64 { return JSONCost(len(l.headers)) + JSONCost(len(l.types)) }

// Headers reads the header table with its types, as ParseTable does, within most bytes of memory, as MaxMemory.
func (l *Line) Headers(skip func(name string) bool, most int) (t amqp.Table, cost int64, err error) {
	if l.headers == nil {
		return nil, 0, nil
	}
	var types amqp.Table
	if l.types != nil {
		v, err := parseValue(l.types, most)
		if t, ok := v.(amqp.Table); ok || v == nil {
			types = t
		} else if err == nil {
			err = errors.New("not a JSON object")
		}
		if err != nil {
			return nil, 0, fmt.Errorf("header_types: %w", err)
		}
	}
	return parseTable(l.headers, types, skip, most)
}

// unescapeJSON returns the content of a valid JSON string, which it replaces in memory: no escape is shorter than what
// it stands for, so AppendUnquote writes only where it has read already.
func unescapeJSON(quoted []byte) []byte {
	text, _ := jsontext.AppendUnquote(quoted[:0], quoted)
	return text
}
