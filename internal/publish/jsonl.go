package publish

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/telemetry"
)

// item is one line of a batch. Its names are those of the records of dead letters where there are such.
type item struct {
	Exchange        *string         `json:"exchange"` // an alias; absent is "default"
	RoutingKey      string          `json:"routing_key"`
	Body            json.RawMessage `json:"body"`        // a text is published as it is, anything else as JSON
	BodyBase64      *string         `json:"body_base64"` // in the place of body
	ContentType     *string         `json:"content_type"`
	ContentEncoding string          `json:"content_encoding"`
	MessageID       string          `json:"message_id"`
	CorrelationID   string          `json:"correlation_id"`
	ReplyTo         string          `json:"reply_to"`
	Type            string          `json:"type"`
	AppID           string          `json:"app_id"`
	Priority        json.Number     `json:"priority"`
	Expiration      json.RawMessage `json:"expiration"` // milliseconds, as a number or a text
	Timestamp       string          `json:"timestamp"`  // RFC 3339
	Headers         json.RawMessage `json:"headers"`    // an object; its values keep their types
}

// readLine makes a message of a line of JSON.
func (s *Server) readLine(line []byte, request telemetry.Carrier) (message, *failure) {
	var in item
	if f := decode(line, &in); f != nil {
		return message{}, f
	}
	alias := defaultAlias
	if in.Exchange != nil {
		alias = *in.Exchange
	}
	m, f := s.address(alias, in.RoutingKey)
	if f != nil {
		return m, f
	}
	if f = in.properties(&m.msg); f != nil {
		return m, f
	}
	if m.msg.Headers, f = readTable(in.Headers); f != nil {
		return m, f
	}
	if f = in.body(&m.msg); f != nil {
		return m, f
	}
	if int64(len(m.msg.Body)) > s.o.MaxBody {
		return m, errTooLarge
	}
	m.trace = prefer(telemetry.CarrierFrom(m.msg.Headers), request)
	return m, nil
}

// decode reads exactly one JSON object without unknown fields: one that is not understood must not be lost.
func decode(line []byte, into *item) *failure {
	if !utf8.Valid(line) {
		return bad("The line is not UTF-8; bytes are for body_base64.")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return bad("The line is not a JSON object of a message: %s.", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return bad("There is something behind the JSON object.")
	}
	return nil
}

func (in *item) properties(m *amqp.Publishing) *failure {
	for _, p := range [...]struct {
		to          *string
		name, value string
	}{
		{&m.ContentEncoding, "content_encoding", in.ContentEncoding}, {&m.MessageId, "message_id", in.MessageID},
		{&m.CorrelationId, "correlation_id", in.CorrelationID}, {&m.ReplyTo, "reply_to", in.ReplyTo}, {&m.Type, "type", in.Type},
		{&m.AppId, "app_id", in.AppID},
	} {
		if f := setShort(p.to, p.name, p.value); f != nil {
			return f
		}
	}
	if in.ContentType != nil {
		if f := setShort(&m.ContentType, "content_type", *in.ContentType); f != nil {
			return f
		}
	}
	if f := setPriority(&m.Priority, "priority", in.Priority.String()); f != nil {
		return f
	}
	expiration := strings.Trim(string(in.Expiration), `"`)
	if expiration == "null" {
		expiration = ""
	}
	if f := setExpiration(&m.Expiration, "expiration", expiration); f != nil {
		return f
	}
	return setTimestamp(&m.Timestamp, "timestamp", in.Timestamp)
}

func (in *item) body(m *amqp.Publishing) *failure {
	switch {
	case in.BodyBase64 != nil && in.Body != nil:
		return bad("There are body and body_base64; one of them is enough.")
	case in.BodyBase64 != nil:
		b, err := base64.StdEncoding.DecodeString(*in.BodyBase64)
		if err != nil {
			return bad("body_base64 is not base64.")
		}
		m.Body = b
	case len(in.Body) > 0 && in.Body[0] == '"':
		if inner := in.Body[1 : len(in.Body)-1]; bytes.IndexByte(inner, '\\') < 0 { // most large texts stand there as they are
			m.Body = bytes.Clone(inner)
			break
		}
		var text string
		_ = json.Unmarshal(in.Body, &text) // it was parsed with the line before: it cannot fail
		m.Body = []byte(text)
	case in.Body != nil:
		m.Body = bytes.Clone(in.Body)
		if in.ContentType == nil {
			m.ContentType = "application/json"
		}
	}
	return nil
}

// maxNesting is how deep the values of headers may be nested. RabbitMQ's own tables go three deep.
const maxNesting = 16

// readTable reads a header table, without what must not be published.
func readTable(raw json.RawMessage) (amqp.Table, *failure) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var object map[string]any
	if err := d.Decode(&object); err != nil {
		return nil, bad("headers must be a JSON object.")
	}
	t := amqp.Table{}
	for name, v := range object {
		if left(name) {
			continue
		}
		value, err := fieldOf(v, maxNesting)
		if err != nil {
			return nil, bad("The header %.100q %s.", name, err)
		}
		t[name] = value
	}
	return t, nil
}

// fieldOf is the AMQP value of a JSON value.
func fieldOf(v any, depth int) (any, error) {
	if depth == 0 {
		return nil, fmt.Errorf("is nested more than %d deep", maxNesting)
	}
	switch v := v.(type) {
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, nil
		}
		f, err := v.Float64()
		if err != nil || math.IsInf(f, 0) {
			return nil, errors.New("is a number that AMQP does not have")
		}
		return f, nil
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			var err error
			if list[i], err = fieldOf(e, depth-1); err != nil {
				return nil, err
			}
		}
		return list, nil
	case map[string]any:
		t := amqp.Table{}
		for k, e := range v {
			value, err := fieldOf(e, depth-1)
			if err != nil {
				return nil, err
			}
			t[k] = value
		}
		return t, nil
	}
	return v, nil // text, bool or null
}
