package telemetry

import amqp "github.com/rabbitmq/amqp091-go"

// Carrier is a W3C trace context in its wire form; an empty string is not sent. Its fields are those of
// message.TraceContext, so one converts to the other.
type Carrier struct {
	Traceparent, Tracestate, Baggage string
}

// Bounds of what a message may make us send: the W3C's own minimum for tracestate and maximum for baggage.
const (
	maxTracestate = 512
	maxBaggage    = 8192
)

// CarrierFrom reads the three headers, by their exact lower-case names, from a message. Values that are neither text
// nor bytes, or longer than is ever passed on, read as absent. It checks no syntax: Process does.
func CarrierFrom(h amqp.Table) Carrier {
	if len(h) == 0 {
		return Carrier{}
	}
	return Carrier{
		Traceparent: text(h["traceparent"], maxTraceparent),
		Tracestate:  text(h["tracestate"], maxTracestate),
		Baggage:     text(h["baggage"], maxBaggage),
	}
}

func text(v any, limit int) string {
	switch v := v.(type) {
	case string:
		if len(v) <= limit {
			return v
		}
	case []byte:
		if len(v) <= limit {
			return string(v)
		}
	}
	return ""
}

// valid drops headers that must not be passed on: publishers can forge them, and they end in an HTTP request. A
// tracestate means nothing without its traceparent; baggage does not need one.
func (c Carrier) valid() Carrier {
	if !validTraceparent(c.Traceparent) {
		c.Traceparent, c.Tracestate = "", ""
	}
	if len(c.Tracestate) > maxTracestate || !isPrintable(c.Tracestate) {
		c.Tracestate = ""
	}
	if len(c.Baggage) > maxBaggage || !isPrintable(c.Baggage) {
		c.Baggage = ""
	}
	return c
}
