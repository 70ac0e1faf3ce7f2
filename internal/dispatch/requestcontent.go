package dispatch

import (
	"strings"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

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
// allowed in a header is left out, because an encoded one would name an unknown type. An event without one has none in
// the request either: a receiver would take it for the event's datacontenttype. A broken content encoding is
// percent-encoded instead: without it the app would take a compressed body for plain text, with it the app objects.
func (r *request) content(t *Target, m *message.Message) {
	kind := m.ContentType
	if kind == "" && t.o.CloudEvents {
		kind = dataContentType(m.Headers)
	}
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
	r.set("Content-Encoding: ", m.ContentEncoding)
}
