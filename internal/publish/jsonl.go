package publish

import (
	"encoding/base64"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// fields are those of one line of a batch. Properties are named as in records of dead letters and rows of an outbox.
type fields struct {
	exchange   string  // an alias
	routingKey *string // required, and may be empty
	body       []byte  // JSON: a string is published as its text, anything else as the JSON itself
	bodyBase64 []byte  // JSON, in the place of body
	headers    []byte  // JSON
	typed      bool    // there is a content_type
	msg        amqp.Publishing
	failed     *failure // of the first property that is invalid
}

// readLine makes a message of a line of JSON. r holds the capacity of the line. The body of the message may be a part
// of the line, which is changed where a string in it has escapes.
func (s *Server) readLine(line []byte, request telemetry.Carrier, r *room) (outgoing, *failure) {
	in := fields{exchange: defaultAlias}
	if f := in.decode(line); f != nil {
		return outgoing{}, f
	}
	m, f := s.address(in.exchange, *in.routingKey)
	if f == nil {
		f = in.failed
	}
	if f == nil {
		f = in.readHeaders(r)
	}
	if f == nil {
		f = in.readBody(r, line)
	}
	if f != nil {
		return m, f
	}
	m.msg = in.msg
	if int64(len(m.msg.Body)) > s.o.MaxBody {
		return m, errTooLarge
	}
	m.trace = prefer(telemetry.CarrierFrom(m.msg.Headers), request)
	return m, nil
}

// decode reads exactly one JSON object in which every field is known and there once: the value of any other would be
// lost. Package json would accept names in any case, use the last of several values, and null for an object.
func (in *fields) decode(line []byte) *failure {
	if !utf8.Valid(line) {
		return bad("The line is not UTF-8; bytes are for body_base64.")
	}
	d, err := amqpvalue.DecodeJSON(line)
	if err != nil {
		return bad("The line is not a JSON object of a message: %s.", err)
	}
	if t, _ := d.ReadToken(); t.Kind() != '{' {
		return bad("The line is not a JSON object of a message.")
	}
	seen := map[string]bool{}
	for d.PeekKind() != '}' {
		quoted, _ := d.ReadValue()
		if len(quoted) > maxQuoted {
			return bad("There is no field %.100s; case matters.", quoted)
		}
		text, _ := jsontext.AppendUnquote(nil, quoted)
		name := string(text)
		if seen[name] {
			return bad("The field %s is there twice.", name)
		}
		seen[name] = true
		value, _ := d.ReadValue() // belongs to d; the line is ours
		end := d.InputOffset()
		if f := in.set(name, line[end-int64(len(value)):end:end]); f != nil {
			return f
		}
	}
	if in.routingKey == nil {
		return bad("There is no routing_key; it may be empty.")
	}
	return nil
}

// maxQuoted is the longest JSON of a short string, in bytes: each byte of it may be written as \u00XX.
const maxQuoted = 6*amqpvalue.ShortMax + 2

// set reads a field. Body and headers, which may be large, stay in the line; all other fields are short.
func (in *fields) set(name string, value jsontext.Value) *failure {
	// A body that is not a string is published as its JSON text.
	if (name != "body" || value[0] == '"') && !value.IsValid(jsontext.AllowDuplicateNames(true)) {
		return bad("The field %s holds half of a surrogate pair, which is not text.", name)
	}
	switch name {
	case "body":
		in.body = value
		return nil
	case "body_base64":
		if string(value) != "null" {
			in.bodyBase64 = value
		}
		return nil
	case "headers":
		in.headers = value
		return nil
	case "user_id", "delivery_mode": // properties, but not the app's to set
		return bad("There is no field %s.", name)
	}
	if len(value) > maxQuoted {
		return bad("The field %.100s has %d bytes of JSON; AMQP allows %d bytes.", name, len(value), amqpvalue.ShortMax)
	}
	v, err := amqpvalue.ParseValue(value)
	text, isText := v.(string)
	switch {
	case err != nil:
		return bad("The field %.100s cannot be read: %s.", name, err)
	case amqpvalue.IsProperty(name):
		in.typed = in.typed || name == "content_type" && v != nil
		if f := setProperty(&in.msg, name, name, v); in.failed == nil {
			in.failed = f
		}
	case name != "exchange" && name != "routing_key":
		return bad("There is no field %.100q; case matters.", name)
	case v == nil: // as if it were absent
	case !isText:
		return bad("The field %s cannot be read: it is not a string.", name)
	case name == "exchange":
		in.exchange = text
	default:
		in.routingKey = &text
	}
	return nil
}

// readHeaders reads the header table.
func (in *fields) readHeaders(r *room) (f *failure) {
	if in.headers == nil {
		return nil
	}
	most := amqpvalue.JSONCost(len(in.headers))
	if f = r.reserve(most); f != nil {
		return f
	}
	t, cost, err := amqpvalue.ParseTable(in.headers, message.Reserved)
	if err != nil {
		return bad("The headers cannot be published: %s.", err)
	}
	r.give(most - cost)
	in.msg.Headers = t
	return nil
}

func (in *fields) readBody(r *room, line []byte) *failure {
	switch {
	case in.bodyBase64 != nil && in.body != nil:
		return bad("There are body and body_base64; one of them is enough.")
	case in.bodyBase64 != nil:
		return in.decodeBase64(r, line)
	case len(in.body) > 0 && in.body[0] == '"':
		in.msg.Body = unescapeJSON(in.body)
	case in.body != nil:
		in.msg.Body = in.body
		if !in.typed {
			in.msg.ContentType = "application/json"
		}
	}
	return nil
}

// decodeBase64 sets the body to a buffer of its own and gives back the memory of the line.
func (in *fields) decodeBase64(r *room, line []byte) (f *failure) {
	if in.bodyBase64[0] != '"' {
		return bad("The field body_base64 is not a string.")
	}
	text := unescapeJSON(in.bodyBase64)
	size := base64.StdEncoding.DecodedLen(len(text))
	if f = r.reserve(int64(size)); f != nil {
		return f
	}
	var err error
	if in.msg.Body, err = base64.StdEncoding.AppendDecode(make([]byte, 0, size), text); err != nil {
		return bad("body_base64 is not base64.")
	}
	r.give(int64(cap(line)))
	return nil
}

// unescapeJSON returns the content of a valid JSON string, which it replaces in memory: no escape is shorter than what
// it stands for, so AppendUnquote writes only where it has read already.
func unescapeJSON(quoted []byte) []byte {
	text, _ := jsontext.AppendUnquote(quoted[:0], quoted)
	return text
}
