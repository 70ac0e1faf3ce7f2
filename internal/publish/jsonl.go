package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// item is one line of a batch. Its names are those of the records of dead letters where there are such.
type item struct {
	exchange        *string         // an alias; absent is "default"
	routingKey      *string         // required, and may be empty
	body            json.RawMessage // a text is published as it is, anything else as JSON
	bodyBase64      json.RawMessage // a text, in the place of body
	contentType     *string
	contentEncoding string
	messageID       string
	correlationID   string
	replyTo         string
	kind            string // the property type
	appID           string
	priority        json.Number
	expiration      json.RawMessage // milliseconds, as a number or a text
	timestamp       string          // RFC 3339
	headers         json.RawMessage // an object; its values keep their types
}

// field is where the value of a field belongs; nil for a name that is not exactly that of one.
func (in *item) field(name string) any {
	switch name {
	case "exchange":
		return &in.exchange
	case "routing_key":
		return &in.routingKey
	case "body":
		return &in.body
	case "body_base64":
		return &in.bodyBase64
	case "content_type":
		return &in.contentType
	case "content_encoding":
		return &in.contentEncoding
	case "message_id":
		return &in.messageID
	case "correlation_id":
		return &in.correlationID
	case "reply_to":
		return &in.replyTo
	case "type":
		return &in.kind
	case "app_id":
		return &in.appID
	case "priority":
		return &in.priority
	case "expiration":
		return &in.expiration
	case "timestamp":
		return &in.timestamp
	case "headers":
		return &in.headers
	}
	return nil
}

// readLine makes a message of a line of JSON. r holds the capacity of the line. The body of the message may be a part of the
// line, which is changed where a text in it has escapes.
func (s *Server) readLine(line []byte, request telemetry.Carrier, r *room) (outgoing, *failure) {
	var in item
	if f := decode(line, &in); f != nil {
		return outgoing{}, f
	}
	alias := defaultAlias
	if in.exchange != nil {
		alias = *in.exchange
	}
	m, f := s.address(alias, *in.routingKey)
	if f != nil {
		return m, f
	}
	if f = in.properties(&m.msg); f != nil {
		return m, f
	}
	if f = in.table(&m.msg, r); f != nil {
		return m, f
	}
	if f = in.content(&m.msg, r); f != nil {
		return m, f
	}
	if in.bodyBase64 != nil { // it was decoded into a buffer of its own
		r.give(int64(cap(line)))
	}
	if int64(len(m.msg.Body)) > s.o.MaxBody {
		return m, errTooLarge
	}
	m.trace = prefer(telemetry.CarrierFrom(m.msg.Headers), request)
	return m, nil
}

// decode reads exactly one JSON object whose fields are all known and there once: what is not understood must not be lost.
// Package json would take names in any case, the last of several values, and null for an object.
func decode(line []byte, into *item) *failure {
	if !utf8.Valid(line) {
		return bad("The line is not UTF-8; bytes are for body_base64.")
	}
	if err := message.CheckJSON(line); err != nil {
		return bad("The line is not a JSON object of a message: %s.", err)
	}
	if bytes.TrimLeft(line, " \t\r")[0] != '{' {
		return bad("The line is not a JSON object of a message.")
	}
	seen := map[string]bool{}
	for quoted, value := range message.JSONFields(line) {
		if len(quoted) > maxQuoted {
			return bad("There is no field %.100s; case matters.", quoted)
		}
		var name string
		_ = json.Unmarshal(quoted, &name) // of valid JSON: it cannot fail
		to := into.field(name)
		switch {
		case to == nil:
			return bad("There is no field %.100q; case matters.", name)
		case seen[name]:
			return bad("The field %s is there twice.", name)
		}
		seen[name] = true
		// A body that is not a text is published as it stands.
		if (name != "body" || value[0] == '"') && hasLoneSurrogate(value) {
			return bad("The field %s holds half of a surrogate pair, which is not text.", name)
		}
		if f := set(to, name, value); f != nil {
			return f
		}
	}
	if into.routingKey == nil {
		return bad("There is no routing_key; it may be empty.")
	}
	return nil
}

// maxQuoted is how long a property may be in JSON, in bytes: each byte of it may be written as \u00XX.
const maxQuoted = 6*maxShort + 2

// set reads a value into a field. Large values stay where they are, all others are short.
func set(to any, name string, value []byte) *failure {
	if raw, is := to.(*json.RawMessage); is && name != "expiration" {
		if name != "body_base64" || string(value) != "null" {
			*raw = value
		}
		return nil
	}
	if len(value) > maxQuoted {
		return bad("The field %s has %d bytes of JSON; AMQP allows texts of %d bytes.", name, len(value), maxShort)
	}
	if text, is := to.(*string); is && value[0] == '"' && bytes.IndexByte(value, '\\') < 0 {
		*text = string(value[1 : len(value)-1])
		return nil
	}
	if err := json.Unmarshal(value, to); err != nil {
		return bad("The field %s cannot be read: %s.", name, strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func (in *item) properties(m *amqp.Publishing) *failure {
	for _, p := range [...]struct {
		to          *string
		name, value string
	}{
		{&m.ContentEncoding, "content_encoding", in.contentEncoding}, {&m.MessageId, "message_id", in.messageID},
		{&m.CorrelationId, "correlation_id", in.correlationID}, {&m.ReplyTo, "reply_to", in.replyTo}, {&m.Type, "type", in.kind},
		{&m.AppId, "app_id", in.appID},
	} {
		if f := setShort(p.to, p.name, p.value); f != nil {
			return f
		}
	}
	if in.contentType != nil {
		if f := setShort(&m.ContentType, "content_type", *in.contentType); f != nil {
			return f
		}
	}
	if f := setPriority(&m.Priority, "priority", in.priority.String()); f != nil {
		return f
	}
	expiration := strings.Trim(string(in.expiration), `"`)
	if expiration == "null" {
		expiration = ""
	}
	if f := setExpiration(&m.Expiration, "expiration", expiration); f != nil {
		return f
	}
	return setTimestamp(&m.Timestamp, "timestamp", in.timestamp)
}

// table reads the headers.
func (in *item) table(m *amqp.Publishing, r *room) (f *failure) {
	if in.headers == nil {
		return nil
	}
	most := message.JSONCost(len(in.headers))
	if f = r.take(most); f != nil {
		return f
	}
	t, cost, err := message.ReadTable(in.headers, maxNesting)
	if err != nil {
		return bad("The headers cannot be published: %s.", err)
	}
	r.give(most - cost)
	m.Headers = t
	return nil
}

func (in *item) content(m *amqp.Publishing, r *room) *failure {
	switch {
	case in.bodyBase64 != nil && in.body != nil:
		return bad("There are body and body_base64; one of them is enough.")
	case in.bodyBase64 != nil:
		return in.decodeBase64(m, r)
	case len(in.body) > 0 && in.body[0] == '"':
		m.Body = unescapeJSON(in.body)
	case in.body != nil:
		m.Body = in.body
		if in.contentType == nil {
			m.ContentType = "application/json"
		}
	}
	return nil
}

func (in *item) decodeBase64(m *amqp.Publishing, r *room) *failure {
	if in.bodyBase64[0] != '"' {
		return bad("The field body_base64 is not a text.")
	}
	text := unescapeJSON(in.bodyBase64)
	size := base64.StdEncoding.DecodedLen(len(text))
	if f := r.take(int64(size)); f != nil {
		return f
	}
	m.Body = make([]byte, size)
	n, err := base64.StdEncoding.Decode(m.Body, text)
	if err != nil {
		return bad("body_base64 is not base64.")
	}
	m.Body = m.Body[:n]
	return nil
}

// maxNesting is how deep the values of headers may be nested. RabbitMQ's own tables go three deep.
const maxNesting = 16
