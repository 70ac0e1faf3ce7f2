package dispatch

import (
	"strconv"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

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
