package dispatch

import "sidecar/internal/amqpvalue"

// appendAny appends the header value v as text, percent-encoded by e. It returns false for a value that is too long,
// too deep or of a type that AMQP does not have.
func (r *request) appendAny(v any, e *escapes) bool {
	if s, isText := v.(string); isText { // most values are, and need no copy
		if len(s) > maxValue {
			return false
		}
		r.out = appendEscaped(r.out, s, e)
		return true
	}
	var ok bool
	if r.json, ok = amqpvalue.AppendText(r.json[:0], v, maxValue); ok {
		r.out = appendEscaped(r.out, r.json, e)
	}
	return ok
}
