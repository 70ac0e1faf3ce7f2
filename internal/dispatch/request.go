package dispatch

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"strings"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

func appendStart(dst []byte, method, target, host, version string) []byte {
	dst = append(dst, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: amqp-sidecar/"...)
	dst = appendEscaped(dst, strings.ReplaceAll(version, " ", "-"), escapeValue)
	return append(dst, '\r', '\n')
}

// authorization appends the bearer token, if set. A token with characters that are not allowed in a header is left out:
// a mangled one would only be refused.
func (t *Target) authorization(dst []byte) []byte {
	if t.o.Token == nil {
		return dst
	}
	token := t.o.Token()
	if token == "" {
		return dst
	}
	if !http1.Printable(token) || strings.Contains(token, " ") {
		t.badToken.Do(func() {
			t.o.Logger.Warn("app token not sent", "reason", "it has a space, control or non-ASCII character")
		})
		return dst
	}
	dst = append(dst, "Authorization: Bearer "...)
	dst = append(dst, token...)
	return append(dst, '\r', '\n')
}

// request is a buffer for an encoded head, with the state of the encoder.
type request struct {
	out     []byte
	leftOut int  // headers of the message that are not in out
	inJSON  bool // out is JSON, an event

	keys  []string
	names []written // message headers in out
	most  int       // how many of them may be written
	spent int       // bytes of the budget used
	json  []byte
}

// forget drops references to the message.
func (r *request) forget() {
	clear(r.keys)
	if cap(r.keys) > 1024 {
		r.keys = nil
	}
}

// encode writes the head for m, everything up to the body, and returns the number of message headers it left out. url
// is that of a route, or "". The same message always gives the same bytes.
func (r *request) encode(t *Target, m *message.Message, url string) int {
	r.start(t, url)
	r.leftOut, r.spent, r.names = 0, 0, r.names[:0]
	before := len(r.out)
	r.content(t, m)
	r.properties(m)
	r.delivery(m)
	r.traces(&m.Trace)
	r.most = maxLines - reservedLines - bytes.Count(r.out[before:], []byte{'\n'})
	r.headers(t, m.Headers)
	if t.o.CloudEvents && !isEnvelope(m.ContentType) { // in structured mode the body has them
		r.synthesise(m)
	}
	if r.leftOut > 0 {
		r.number("Amqp-Headers-Truncated: ", int64(r.leftOut))
	}
	r.out = append(r.out, '\r', '\n')
	return r.leftOut
}

// start writes what does not depend on the message.
func (r *request) start(t *Target, url string) {
	r.out = append(r.out[:0], t.static...)
	if url != "" {
		r.out = append(append(r.out[:len("POST ")], url[len(t.origin):]...), t.static[len("POST ")+t.path:]...)
	}
	r.out = t.authorization(r.out)
}

const octetStream = "application/octet-stream"

// isEnvelope reports whether the body is a whole event: the type may have a suffix and parameters.
func isEnvelope(contentType string) bool {
	const kind = "application/cloudevents"
	return strings.EqualFold(contentType[:min(len(contentType), len(kind))], kind)
}

// isContentType reports whether a content type is allowed in a header.
func isContentType(kind string) bool {
	return len(kind) <= maxValue && http1.Printable(kind) && strings.TrimSpace(kind) == kind
}

// content appends the headers that describe the body.
//
// A content type is sent byte for byte, '%' included: frameworks match on it and none decodes it. One that is not
// allowed in a header is left out, because an encoded one would name an unknown type. An event without one that is not
// JSON has none in the request either: a receiver would take it for the event's datacontenttype. A content encoding
// that HTTP does not have, such as utf-8, has a header of its own: servers answer 415 to it.
func (r *request) content(t *Target, m *message.Message) {
	kind := t.contentType(m)
	switch {
	case t.o.Envelopes && !isEnvelope(kind):
		// Dapr's component for RabbitMQ publishes envelopes as text/plain, which no app takes for one.
		kind = "application/cloudevents+json"
	case !isContentType(kind):
		kind = ""
		r.leftOut++
	}
	if kind == "" && !t.o.CloudEvents {
		kind = octetStream
	}
	if kind != "" {
		r.out = append(r.out, "Content-Type: "...)
		r.out = append(r.out, kind...)
		r.out = append(r.out, '\r', '\n')
	}
	r.number("Content-Length: ", int64(len(m.Body)))
	name := "Content-Encoding: "
	if m.ContentEncoding != "" && !amqpvalue.IsHTTPCoding(m.ContentEncoding) {
		name = "Amqp-Content-Encoding: "
	}
	r.set(name, m.ContentEncoding)
}

// contentType returns the content type of the message, or the default one. octetStream says no more than no type, and
// bunny sets it on every message: such a body is inspected, too.
func (t *Target) contentType(m *message.Message) string {
	kind := m.ContentType
	if kind == "" && (t.o.CloudEvents || t.o.BatchFormat == "cloudevents") {
		kind = dataContentType(m.Headers)
	}
	isUnknown := kind == "" || t.o.DefaultType == amqpvalue.AutoType && strings.EqualFold(kind, octetStream)
	if isUnknown && !t.o.Envelopes {
		kind = cmp.Or(amqpvalue.DefaultType(t.o.DefaultType, m.Body), kind)
	}
	return kind
}

// asSent returns m as it is POSTed. RabbitMQ passes a value section of an AMQP 1.0 client on in its encoding. A single
// string or binary is unwrapped in a copy; m itself stays as it is, because it may be parked.
func asSent(m *message.Message) *message.Message {
	if m.Type != "amqp-1.0" {
		return m
	}
	body, ok := valueOf(m.Body)
	if !ok {
		return m
	}
	plain := *m
	plain.Body, plain.Type = body, ""
	return &plain
}

// valueOf returns the bytes of an amqp-value section that is all of body: a string or binary with its length in one
// byte or in four.
func valueOf(body []byte) ([]byte, bool) {
	value, ok := bytes.CutPrefix(body, []byte("\x00\x53\x77"))
	if !ok || len(value) < 2 {
		return nil, false
	}
	size, start := int64(value[1]), 2
	switch value[0] {
	case 0xa0, 0xa1:
	case 0xb0, 0xb1:
		if start = 5; len(value) < start {
			return nil, false
		}
		size = int64(binary.BigEndian.Uint32(value[1:]))
	default:
		return nil, false
	}
	return value[start:], size == int64(len(value)-start)
}
