package dispatch

import (
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// line appends m as a line of JSON: the object that /publish:batch takes, and a member about the delivery.
func (b *batch) line(t *Target, m *message.Message) {
	b.form = amqp.Publishing{
		ContentType: t.contentType(m), ContentEncoding: m.ContentEncoding, Priority: m.Priority,
		CorrelationId: m.CorrelationID, ReplyTo: m.ReplyTo, Expiration: m.Expiration, MessageId: m.MessageID,
		Timestamp: amqpvalue.RealTime(m.Timestamp), Type: m.Type, UserId: m.UserID, AppId: m.AppID,
		Headers: b.headers(t, m), Body: m.Body,
	}
	out := amqpvalue.AppendLine(b.out, m.Exchange, m.RoutingKey, &b.form)
	out = append(out[:len(out)-1], `,"delivery":{"attempt":`...)
	out = strconv.AppendInt(out, int64(m.RetryCount)+1, 10)
	out = append(out, `,"retry_count":`...)
	out = strconv.AppendInt(out, int64(m.RetryCount), 10)
	out = append(out, `,"last_attempt":`...)
	out = strconv.AppendBool(out, m.LastAttempt())
	out = append(out, `,"redelivered":`...)
	out = strconv.AppendBool(out, m.Redelivered)
	out = append(out, `,"queue":`...)
	out, _ = jsontext.AppendQuote(out, m.Queue)
	b.out = append(out, "}}\n"...)
}

// headers returns the headers of m that the app may see, with the trace context of m in the place of its own.
func (b *batch) headers(t *Target, m *message.Message) amqp.Table {
	all := m.Trace == message.TraceContext{}
	for k := range m.Headers {
		all = all && t.shows(k)
	}
	if all {
		return m.Headers
	}
	clear(b.table)
	for k, v := range m.Headers {
		if t.shows(k) {
			b.table[k] = v
		}
	}
	for i, v := range [...]string{m.Trace.Traceparent, m.Trace.Tracestate, m.Trace.Baggage} {
		if v != "" {
			b.table[traceNames[i]] = v
		}
	}
	return b.table
}

var traceNames = [...]string{"traceparent", "tracestate", "baggage"}

// shows reports whether a line has the header. /publish:batch does not take reserved ones.
func (t *Target) shows(key string) bool {
	return !isTrace(key) && !message.Reserved(key) && (t.forward.Match(key) || t.passthrough.Match(key))
}
