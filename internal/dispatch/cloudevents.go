package dispatch

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// cutAttribute takes the CloudEvents prefix off a header key; the AMQP binding allows two.
func cutAttribute(key string) (string, bool) {
	const size = len("cloudevents_")
	if len(key) < size || !strings.EqualFold(key[:size-1], "cloudevents") || key[size-1] != '_' && key[size-1] != ':' {
		return "", false
	}
	return key[size:], true
}

// dataContentType is the event's content type, where the property that should hold it is empty.
func dataContentType(h amqp.Table) string {
	for _, k := range [...]string{"cloudEvents:datacontenttype", "cloudEvents_datacontenttype"} {
		if s, ok := h[k].(string); ok {
			return s
		}
	}
	return ""
}

// attribute appends one attribute as ce-*, its value in the canonical form of CloudEvents: bytes are in base64. A value
// that the specification would object to is passed on as it is; one that is void is no attribute.
func (r *request) attribute(name string, v any) {
	mark := len(r.out)
	r.out = append(r.out, "ce-"...)
	r.out = appendName(r.out, name)
	attr := r.out[mark+len("ce-"):]
	for i, c := range attr {
		attr[i] = http1.Lower(c)
	}
	if b, isBinary := v.([]byte); isBinary {
		v = base64.StdEncoding.EncodeToString(b[:min(len(b), maxValue)])
	}
	switch {
	case len(attr) == 0:
		r.takeBack(mark)
	case v == nil, string(attr) == "datacontenttype": // in binary mode Content-Type is this attribute
		r.out = r.out[:mark]
	default:
		r.value(mark, v, escapeAttribute)
	}
}

// synthesise appends the required attributes that the message lacks, made from what stays the same in a retry.
func (r *request) synthesise(m *message.Message) {
	r.required("specversion", "", "1.0", escapeAttribute)
	if !r.hasAttribute("id") {
		id := m.MessageID
		if id == "" || len(id) > maxValue {
			id = digest(m)
		}
		r.required("id", "", id, escapeAttribute)
	}
	r.required("source", "/exchanges/", cmp.Or(m.Exchange, message.DefaultExchange), escapePath)
	r.required("type", "", madeType(m), escapeAttribute)
}

func madeType(m *message.Message) string { return cmp.Or(m.Type, m.RoutingKey, "amqp.message") }

// required appends an attribute that the message lacks.
func (r *request) required(name, start, value string, e *escapes) {
	if r.hasAttribute(name) {
		return
	}
	value = strings.ToValidUTF8(value, "\uFFFD") // receivers have to refuse anything else
	if r.inJSON {
		if e == escapePath {
			value = string(appendEscaped([]byte(start), value, e))
		}
		r.member(name, value)
		return
	}
	r.out = append(append(append(append(r.out, "ce-"...), name...), ": "...), start...)
	r.out = append(appendEscaped(r.out, value, e), '\r', '\n')
}

// hasAttribute reports whether the message has the attribute: their names are in lower case.
func (r *request) hasAttribute(name string) bool {
	return slices.ContainsFunc(r.names, func(n written) bool {
		own, isAttribute := bytes.CutPrefix(r.out[n.start:n.end], []byte("ce-"))
		return (isAttribute || r.inJSON) && string(own) == name
	})
}

// digest names an event without an id by its content. Two publications that agree in all of this get the same
// id: a publisher that needs to distinguish them sets a message id.
func digest(m *message.Message) string {
	h := sha256.New()
	for _, s := range [...]string{m.MessageID, m.Exchange, m.RoutingKey, m.CorrelationID, m.Type, m.AppID, m.ContentType,
		m.ContentEncoding, strconv.Itoa(int(m.Priority)), strconv.FormatInt(m.Timestamp.Unix(), 10)} {
		h.Write(strconv.AppendQuote(nil, s))
	}
	h.Write(m.Body)
	return hex.EncodeToString(h.Sum(nil)[:16])
}
