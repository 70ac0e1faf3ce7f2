package dispatch

import (
	"bytes"
	"encoding/base64"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// event appends m as an event in JSON, an element of an array. An event that is one already (structured mode) is
// appended as it is.
func (b *batch) event(t *Target, m *message.Message) {
	separator := byte(',')
	if len(b.out) == 0 {
		separator = '['
	}
	r := &b.part
	r.out = append(b.out, separator)
	if t.isEvent(m) {
		b.out = append(r.out, m.Body...)
		return
	}
	r.event(m)
	kind := t.contentType(m)
	if !isContentType(kind) {
		kind = ""
		r.leftOut++
	}
	r.member("datacontenttype", kind)
	encoding := "contentencoding"
	if !amqpvalue.IsHTTPCoding(m.ContentEncoding) {
		encoding = "amqpcontentencoding"
	}
	r.member(encoding, m.ContentEncoding)
	r.data(kind, m.Body)
	b.out = append(r.out, '}')
}

// isEvent reports whether the body is an event in JSON, an object.
func (t *Target) isEvent(m *message.Message) bool {
	return (t.o.Envelopes || isEnvelope(m.ContentType)) && bytes.HasPrefix(bytes.TrimLeft(m.Body, blanks), []byte{'{'}) &&
		isValid(m.Body)
}

// event appends the beginning of an object: all attributes but for those of the data.
func (r *request) event(m *message.Message) {
	r.inJSON, r.leftOut, r.spent, r.names = true, 0, 0, r.names[:0]
	r.out = strconv.AppendInt(append(r.out, `{"deliveryattempt":`...), int64(m.RetryCount)+1, 10)
	if m.Trace.Traceparent != "" {
		r.member("traceparent", m.Trace.Traceparent)
		r.member("tracestate", m.Trace.Tracestate)
	}
	r.attributes(m)
	r.synthesise(m)
}

// eventID returns the id of the event that an app gets for m, or "" if it is longer than a header. The buffer is r.
func (r *request) eventID(t *Target, m *message.Message) (id string) {
	event := m.Body
	if !t.isEvent(m) {
		r.out = r.out[:0]
		r.event(m)
		event = append(r.out, '}')
	}
	for value := range members(event, "id") { // of several most readers take the last one
		id = unquoted(value)
	}
	return id
}

// members returns the values of this name in the JSON object in text. What is not JSON ends it.
func members(text []byte, name string) iter.Seq[jsontext.Value] {
	return func(yield func(jsontext.Value) bool) {
		d := newDecoder(text)
		if t, _ := d.ReadToken(); t.Kind() != '{' {
			return
		}
		for d.PeekKind() == '"' {
			quoted, _ := d.ReadValue()
			is := string(quoted[1:len(quoted)-1]) == name || bytes.IndexByte(quoted, '\\') >= 0 && unquoted(quoted) == name
			if value, err := d.ReadValue(); err != nil || is && !yield(value) {
				return
			}
		}
	}
}

// unquoted returns the text of a JSON value, or "" if the value is longer than a header.
func unquoted(value jsontext.Value) string {
	switch {
	case len(value) > maxValue:
		return ""
	case value.Kind() == '"':
		value, _ = jsontext.AppendUnquote(nil, value)
	}
	return string(value)
}

func (b *batch) endEvents() { b.out = append(b.out, ']') }

func isValid(text []byte) bool {
	return jsontext.Value(text).IsValid(jsontext.AllowDuplicateNames(true))
}

// attributes appends the attributes that the message has as headers, in the order of their keys.
func (r *request) attributes(m *message.Message) {
	r.keys = slices.AppendSeq(r.keys[:0], maps.Keys(m.Headers))
	slices.Sort(r.keys)
	for _, k := range r.keys {
		if name, ok := cutAttribute(k); ok && (m.Trace.Traceparent == "" || !isTrace(name)) {
			r.jsonAttribute(name, m.Headers[k])
		}
	}
}

// jsonAttribute is attribute for an event in JSON: all values are strings. A name that CloudEvents does not allow, or
// that is taken, is left out.
func (r *request) jsonAttribute(key string, v any) {
	mark := len(r.out)
	r.out = append(append(r.out, `,"`...), key...)
	attr := r.out[mark+len(`,"`):]
	allowed := len(attr) > 0
	for i, c := range attr {
		attr[i] = http1.Lower(c)
		allowed = allowed && strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789", attr[i]) >= 0
	}
	if v == nil || string(attr) == "datacontenttype" {
		r.out = r.out[:mark]
		return
	}
	name := newWritten(mark+len(`,"`), attr)
	allowed = allowed && string(attr) != "data" && string(attr) != "deliveryattempt" && !r.has(&name)
	if b, isBinary := v.([]byte); isBinary {
		v = base64.StdEncoding.EncodeToString(b[:min(len(b), maxValue)])
	}
	text, ok := amqpvalue.AppendText(r.json[:0], v, maxValue)
	r.json = text
	r.out, _ = jsontext.AppendQuote(append(r.out, `":`...), text)
	if size := len(r.out) - mark; !allowed || !ok || len(r.names) == maxAttributes || r.spent+size > maxHeaderBytes {
		r.takeBack(mark)
		return
	}
	r.spent += len(r.out) - mark
	r.names = append(r.names, name)
}

// member appends a member whose value is a string, unless it is empty.
func (r *request) member(name, value string) {
	if value != "" && !r.hasAttribute(name) {
		r.out = append(append(append(r.out, `,"`...), name...), `":`...)
		r.out, _ = jsontext.AppendQuote(r.out, value)
	}
}

// data appends the body: JSON as it is, text as a string, and anything else in base64. Without a content type a reader
// takes a string for JSON.
func (r *request) data(kind string, body []byte) {
	isText := strings.HasPrefix(strings.ToLower(kind[:min(len(kind), len("text/"))]), "text/")
	switch {
	case len(body) == 0:
	case amqpvalue.IsJSON(kind) && isValid(body):
		r.out = append(append(r.out, `,"data":`...), body...)
	case isText && amqpvalue.IsText(body):
		r.out, _ = jsontext.AppendQuote(append(r.out, `,"data":`...), body)
	default:
		r.out = base64.StdEncoding.AppendEncode(append(r.out, `,"data_base64":"`...), body)
		r.out = append(r.out, '"')
	}
}
