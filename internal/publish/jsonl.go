package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf16"
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
	bodyBase64      *string         // in the place of body
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

// readLine makes a message of a line of JSON.
func (s *Server) readLine(line []byte, request telemetry.Carrier) (outgoing, *failure) {
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
	var err error
	if m.msg.Headers, err = message.TableFromJSON(in.headers, maxNesting); err != nil {
		return m, bad("The headers cannot be published: %s.", err)
	}
	if f = in.content(&m.msg); f != nil {
		return m, f
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
	d := json.NewDecoder(bytes.NewReader(line))
	broken := func(err error) *failure {
		return bad("The line is not a JSON object of a message: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	switch start, err := d.Token(); {
	case err != nil:
		return broken(err)
	case start != json.Delim('{'):
		return bad("The line is not a JSON object of a message.")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return broken(err)
		}
		name, _ := token.(string) // package json takes nothing else in this place
		to := into.field(name)
		switch {
		case to == nil:
			return bad("There is no field %.100q; case matters.", name)
		case seen[name]:
			return bad("The field %s is there twice.", name)
		}
		seen[name] = true
		begin := d.InputOffset()
		if err = d.Decode(to); err != nil {
			return bad("The field %s cannot be read: %s.", name, strings.TrimPrefix(err.Error(), "json: "))
		}
		// A body that is no text is published as it stands.
		if (name != "body" || into.body[0] == '"') && hasLoneSurrogate(line[begin:d.InputOffset()]) {
			return bad("The field %s holds half of a surrogate pair, which is no text.", name)
		}
	}
	if _, err := d.Token(); err != nil { // its end
		return broken(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("There is something behind the JSON object.")
	}
	if into.routingKey == nil {
		return bad("There is no routing_key; it may be empty.")
	}
	return nil
}

// hasLoneSurrogate looks in valid JSON for an escape of half a character, which package json would replace without a word.
func hasLoneSurrogate(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		if raw = raw[i:]; raw[1] != 'u' {
			raw = raw[2:]
			continue
		}
		first := escaped(raw)
		raw = raw[6:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' || utf16.DecodeRune(first, escaped(raw)) == utf8.RuneError {
			return true
		}
		raw = raw[6:]
	}
}

// escaped reads \uXXXX.
func escaped(raw []byte) rune {
	n, _ := strconv.ParseUint(string(raw[2:6]), 16, 16) // of valid JSON: it cannot fail
	return rune(n)
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

func (in *item) content(m *amqp.Publishing) *failure {
	switch {
	case in.bodyBase64 != nil && in.body != nil:
		return bad("There are body and body_base64; one of them is enough.")
	case in.bodyBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*in.bodyBase64)
		if err != nil {
			return bad("body_base64 is not base64.")
		}
		m.Body = b
	case len(in.body) > 0 && in.body[0] == '"':
		if inner := in.body[1 : len(in.body)-1]; bytes.IndexByte(inner, '\\') < 0 { // most large texts stand there as they are
			m.Body = inner
			break
		}
		var text string
		_ = json.Unmarshal(in.body, &text) // it was parsed with the line before: it cannot fail
		m.Body = []byte(text)
	case in.body != nil:
		m.Body = in.body
		if in.contentType == nil {
			m.ContentType = "application/json"
		}
	}
	return nil
}

// maxNesting is how deep the values of headers may be nested. RabbitMQ's own tables go three deep.
const maxNesting = 16
