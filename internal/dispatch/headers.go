package dispatch

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// The budget of a message's own headers. It keeps the request within what common servers accept: 8 KiB is the whole
// header limit of some, and Python's http.server refuses a request from 100 lines on.
const (
	maxLines       = 90  // of header, in a request
	reservedLines  = 8   // Host, User-Agent, Authorization, Amqp-Headers-Truncated and the four that an event must have
	maxAttributes  = 100 // of an event in a batch
	maxHeaderBytes = 8 << 10
	maxValue       = 2 << 10 // one value, encoded
)

const headerPrefix = "Amqp-Header-"

// headers appends the message's own headers in the order of their keys, so that the same message gives the same
// request and of two names that become one the same always wins.
func (r *request) headers(t *Target, table amqp.Table) {
	if len(table) == 0 {
		return
	}
	r.keys = slices.AppendSeq(r.keys[:0], maps.Keys(table))
	slices.Sort(r.keys)
	for _, k := range r.keys {
		r.header(t, k, table[k])
	}
}

// header appends one header of the message under its allowed name, or leaves it out. A header that configuration or the
// contract excludes is not counted; one that cannot be sent is.
func (r *request) header(t *Target, key string, v any) {
	if isTrace(key) {
		return // travels as Message.Trace, and must not contradict it
	}
	if t.o.CloudEvents {
		if attr, ok := cutAttribute(key); ok {
			r.attribute(attr, v)
			return
		}
	}
	mark := len(r.out)
	r.out = append(r.out, headerPrefix...)
	r.out = appendName(r.out, key)
	name := r.out[mark+len(headerPrefix):]
	switch {
	case len(name) == 0:
		r.takeBack(mark)
		return
	case message.Bookkeeping(name):
		r.out = r.out[:mark]
		return
	case t.passthrough.Match(key) && !deniedBare(name):
		r.out = append(r.out[:mark], name...)
	case !t.forward.Match(key):
		r.out = r.out[:mark]
		return
	}
	r.value(mark, v, escapeValue)
}

// value completes the line whose name is at out[mark:]. It removes the line if the name is taken or the budget does not
// allow it.
func (r *request) value(mark int, v any, e *escapes) {
	name := newWritten(mark, r.out[mark:])
	refused := len(r.names) >= r.most || r.has(&name)
	r.out = append(r.out, ':', ' ')
	start := len(r.out)
	refused = refused || !r.text(v, e) || len(r.out)-start > maxValue
	r.out = append(r.out, '\r', '\n')
	if refused || r.spent+len(r.out)-mark > maxHeaderBytes {
		r.takeBack(mark)
		return
	}
	r.spent += len(r.out) - mark
	r.names = append(r.names, name)
}

// text appends the header value v as text, percent-encoded by e. It returns false for a value that is too long, too
// deep or of a type that AMQP does not have.
func (r *request) text(v any, e *escapes) bool {
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

// written is the place of a header's name in the request, with a hash of its lower case (FNV-1a).
type written struct {
	start, end int
	hash       uint32
}

func newWritten(start int, b []byte) written {
	n := written{start: start, end: start + len(b), hash: 2166136261}
	for _, c := range b {
		n.hash = (n.hash ^ uint32(http1.Lower(c))) * 16777619
	}
	return n
}

// has reports whether a message header of that name, in any case, is in the request already.
func (r *request) has(n *written) bool {
	for i := range r.names {
		o := &r.names[i]
		if o.hash == n.hash && bytes.EqualFold(r.out[o.start:o.end], r.out[n.start:n.end]) {
			return true
		}
	}
	return false
}

// takeBack removes out[mark:] and counts it as left out.
func (r *request) takeBack(mark int) {
	r.out = r.out[:mark]
	r.leftOut++
}

// appendName appends key as the contract maps it: letters, digits and hyphens stay, '_', '.' and space become a
// hyphen, every other byte is dropped.
func appendName(dst []byte, key string) []byte {
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-':
			dst = append(dst, c)
		case c == '_', c == '.', c == ' ':
			dst = append(dst, '-')
		}
	}
	return dst
}

func isTrace(key string) bool {
	return strings.EqualFold(key, "traceparent") || strings.EqualFold(key, "tracestate") ||
		strings.EqualFold(key, "baggage")
}

// properties appends what the publisher set; a property that is absent gives no header.
func (r *request) properties(m *message.Message) {
	r.set("Amqp-Message-Id: ", m.MessageID)
	r.set("Amqp-Correlation-Id: ", m.CorrelationID)
	r.set("Amqp-Reply-To: ", m.ReplyTo)
	r.set("Amqp-Type: ", m.Type)
	r.set("Amqp-App-Id: ", m.AppID)
	r.set("Amqp-User-Id: ", m.UserID)
	if m.Priority > 0 {
		r.number("Amqp-Priority: ", int64(m.Priority))
	}
	r.set("Amqp-Expiration: ", m.Expiration)
	if !m.Timestamp.IsZero() {
		r.timestamp(m.Timestamp)
	}
}

// delivery appends what is known about this delivery and the attempts before it.
func (r *request) delivery(m *message.Message) {
	r.property("Amqp-Queue: ", m.Queue)
	r.property("Amqp-Exchange: ", m.Exchange)
	r.property("Amqp-Routing-Key: ", m.RoutingKey)
	r.number("Amqp-Delivery-Attempt: ", int64(m.RetryCount)+1)
	r.number("Amqp-Retry-Count: ", int64(m.RetryCount))
	r.number("Amqp-Max-Retries: ", int64(m.MaxRetries))
	r.property("Amqp-Redelivered: ", strconv.FormatBool(m.Redelivered))
	if m.LastAttempt() {
		r.out = append(r.out, "Amqp-Last-Attempt: true\r\n"...)
	}
}

// set appends a property that is present.
func (r *request) set(name, value string) {
	if value != "" {
		r.property(name, value)
	}
}

// property appends name, which ends in ": ", and value. AMQP bounds its properties to 255 bytes; the limit is here for
// a message that did not come from a broker.
func (r *request) property(name, value string) {
	mark := len(r.out)
	r.out = append(r.out, name...)
	start := len(r.out)
	if len(value) <= maxValue {
		r.out = appendEscaped(r.out, value, escapeValue)
	}
	if len(value) > maxValue || len(r.out)-start > maxValue {
		r.takeBack(mark)
		return
	}
	r.out = append(r.out, '\r', '\n')
}

func (r *request) number(name string, n int64) {
	r.out = append(r.out, name...)
	r.out = strconv.AppendInt(r.out, n, 10)
	r.out = append(r.out, '\r', '\n')
}

// timestamp leaves out a time that RFC 3339 cannot say: an app that parses the header would fail on it, for ever.
func (r *request) timestamp(t time.Time) {
	t = amqpvalue.RealTime(t).UTC()
	if t.Year() < 0 || t.Year() > 9999 {
		r.leftOut++
		return
	}
	r.out = append(r.out, "Amqp-Timestamp: "...)
	r.out = t.AppendFormat(r.out, time.RFC3339)
	r.out = append(r.out, '\r', '\n')
}

// maxTrace bounds each trace header: W3C asks that 8192 bytes of baggage be passed on.
const maxTrace = 8 << 10

func (r *request) traces(t *message.TraceContext) {
	r.trace("traceparent: ", t.Traceparent)
	r.trace("tracestate: ", t.Tracestate)
	r.trace("baggage: ", t.Baggage)
}

// trace appends a value byte for byte: baggage is percent-encoded already. A value that is not allowed in a header is
// left out.
func (r *request) trace(name, value string) {
	switch {
	case value == "":
	case len(value) > maxTrace || !http1.Printable(value):
		r.leftOut++
	default:
		r.out = append(r.out, name...)
		r.out = append(r.out, value...)
		r.out = append(r.out, '\r', '\n')
	}
}

// escapes says which bytes are percent-encoded.
type escapes [256]bool

var (
	// escapeValue is for header values: control bytes, so that no value can end its line; bytes above ASCII, which
	// servers decode in different ways; and '%', so that decoding gives back exactly what was published.
	escapeValue = newEscapes("%")
	// escapeAttribute is CloudEvents' own rule for ce-* values.
	escapeAttribute = newEscapes("% \"")
	// escapePath is for a path segment.
	escapePath = newEscapes("% \"#<>?[\\]^`{|}/")
	// escapeSegment is for a part of a path segment of the app, whose server may read some of these in its own way.
	escapeSegment = newEscapes("% \"#<>?[\\]^`{|}/!$&'()*+,;=:@")
)

func newEscapes(also string) *escapes {
	var e escapes
	for c := range e {
		e[c] = c < 0x20 || c > 0x7e
	}
	for i := range len(also) {
		e[also[i]] = true
	}
	return &e
}

// appendEscaped appends v with the bytes in e percent-encoded. A space at either end is encoded too: HTTP strips it.
func appendEscaped[T string | []byte](dst []byte, v T, e *escapes) []byte {
	last := len(v) - 1
	from := 0
	for i := 0; i <= last; i++ {
		c := v[i]
		if !e[c] && (c != ' ' || i != 0 && i != last) {
			continue
		}
		dst = append(dst, v[from:i]...)
		dst = append(dst, '%', upperHex[c>>4], upperHex[c&15])
		from = i + 1
	}
	return append(dst, v[from:]...)
}

const upperHex = "0123456789ABCDEF"
