package telemetry

import (
	"encoding/binary"
	"encoding/hex"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.opentelemetry.io/otel/trace"
)

// Carrier is a W3C trace context in its wire form; an empty string is not sent. Its fields are those of
// message.TraceContext, so one converts to the other.
type Carrier struct {
	Traceparent, Tracestate, Baggage string
}

// Bounds of what a message may make us send, in bytes.
const (
	maxTraceparent = 256  // a version later than 00 may append something
	maxTracestate  = 512  // the W3C's minimum
	maxBaggage     = 8192 // the W3C's maximum
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

// Inject sets the headers of c in h, which may be nil, and removes those that c does not have.
func (c Carrier) Inject(h amqp.Table) amqp.Table {
	for _, x := range [...]struct{ name, value string }{
		{"traceparent", c.Traceparent}, {"tracestate", c.Tracestate}, {"baggage", c.Baggage},
	} {
		delete(h, x.name)
		if x.value != "" && h == nil {
			h = amqp.Table{}
		}
		if x.value != "" {
			h[x.name] = x.value
		}
	}
	return h
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

// orNew returns a valid c, with a new traceparent if it has none.
func (c Carrier) orNew(a *Attrs) Carrier {
	if c.Traceparent == "" {
		c.Traceparent = newTraceparent(a)
	}
	return c
}

// Layout of a version 00 traceparent: vv-<32 hex trace id>-<16 hex parent id>-ff.
const (
	traceparentLen = 55
	traceIDStart   = 3
	traceIDEnd     = 35
	spanIDStart    = 36
	spanIDEnd      = 52
	flagsStart     = 53
)

// validTraceparent checks s by the W3C grammar: lower-case hex only, ids not zero, version not ff, no bytes after the
// flags in version 00. A later version may go on after another hyphen; the rest must be printable so that it is allowed
// in an HTTP header.
func validTraceparent(s string) bool {
	if len(s) < traceparentLen || len(s) > maxTraceparent {
		return false
	}
	if s[2] != '-' || s[traceIDEnd] != '-' || s[spanIDEnd] != '-' {
		return false
	}
	if !isHex(s[:2]) || s[:2] == "ff" || !isHex(s[flagsStart:traceparentLen]) {
		return false
	}
	_, badTrace := trace.TraceIDFromHex(s[traceIDStart:traceIDEnd])
	_, badSpan := trace.SpanIDFromHex(s[spanIDStart:spanIDEnd])
	if badTrace != nil || badSpan != nil {
		return false
	}
	if len(s) == traceparentLen {
		return true
	}
	return s[:2] != "00" && s[traceparentLen] == '-' && isPrintable(s[traceparentLen:])
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// isPrintable reports whether s holds only what RFC 9110 allows in a field value and ASCII can print. CR and LF are
// the bytes that matter.
func isPrintable(s string) bool {
	return !strings.ContainsFunc(s, func(c rune) bool { return (c < ' ' || c > '~') && c != '\t' })
}

// newTraceparent starts a trace that was not recorded. Its sampled flag is 0, the W3C's default for a component
// that opens a trace and makes no sampling decision. The trace id of a message with an id is always the same, so that
// its attempts and repeated publishes share a trace even where no header can be added.
func newTraceparent(a *Attrs) string {
	t, s := trace.TraceID{}, trace.SpanID{}
	binary.LittleEndian.PutUint64(s[:], rand.Uint64()|1)  // #nosec G404 -- an id for joining logs guards nothing
	binary.LittleEndian.PutUint64(t[:8], rand.Uint64()|1) // #nosec G404 -- as above; zero is invalid
	binary.LittleEndian.PutUint64(t[8:], rand.Uint64())   // #nosec G404 -- as above
	if a.MessageID != "" {
		// not a cryptographic hash: a message without a traceparent must cost no more than before
		id := fnv.New64a()
		_, _ = id.Write([]byte(a.MessageID))
		_, _ = id.Write([]byte{0xff})
		_, _ = id.Write([]byte(a.CorrelationID))
		sum := rand.NewPCG(id.Sum64(), uint64(a.Timestamp.Unix())) // #nosec G115 G404
		binary.LittleEndian.PutUint64(t[:8], sum.Uint64()|1)
		binary.LittleEndian.PutUint64(t[8:], sum.Uint64())
	}
	return formatTraceparent(t, s, 0)
}

func formatTraceparent(t trace.TraceID, s trace.SpanID, f trace.TraceFlags) string {
	var b [traceparentLen]byte
	b[0], b[1], b[2], b[traceIDEnd], b[spanIDEnd] = '0', '0', '-', '-', '-'
	hex.Encode(b[traceIDStart:traceIDEnd], t[:])
	hex.Encode(b[spanIDStart:spanIDEnd], s[:])
	hex.Encode(b[flagsStart:], []byte{byte(f)})
	return string(b[:])
}

// parseTraceparent needs a valid s, or "" for the invalid context.
func parseTraceparent(s, state string) (none trace.SpanContext) {
	if s == "" {
		return none
	}
	traceID, _ := trace.TraceIDFromHex(s[traceIDStart:traceIDEnd])
	spanID, _ := trace.SpanIDFromHex(s[spanIDStart:spanIDEnd])
	flags, _ := strconv.ParseUint(s[flagsStart:traceparentLen], 16, 8)
	// An unreadable tracestate is dropped alone: the parent stays good without it.
	ts, _ := trace.ParseTraceState(state)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, TraceState: ts,
		Remote: true,
	})
}
