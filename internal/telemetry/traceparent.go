package telemetry

import (
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// Layout of a version 00 traceparent: vv-<32 hex trace id>-<16 hex parent id>-ff.
const (
	traceparentLen = 55
	traceIDStart   = 3
	traceIDEnd     = 35
	spanIDStart    = 36
	spanIDEnd      = 52
	flagsStart     = 53
)

// maxTraceparent bounds what a version later than 00 may append.
const maxTraceparent = 256

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
	if !isID(s[traceIDStart:traceIDEnd]) || !isID(s[spanIDStart:spanIDEnd]) {
		return false
	}
	if len(s) == traceparentLen {
		return true
	}
	return s[:2] != "00" && s[traceparentLen] == '-' && isPrintable(s[traceparentLen:])
}

func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// isID reports whether s is hex and not all zeros.
func isID(s string) bool {
	zero := true
	for i := range len(s) {
		zero = zero && s[i] == '0'
	}
	return !zero && isHex(s)
}

// isPrintable reports whether s holds only what RFC 9110 allows in a field value and ASCII can print. CR and LF are
// the bytes that matter.
func isPrintable(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\t' {
			return false
		}
	}
	return true
}

// newTraceparent starts a trace that was not recorded. Its sampled flag is 0, the W3C's default for a component
// that opens a trace and makes no sampling decision.
func newTraceparent() string {
	var t trace.TraceID
	var s trace.SpanID
	for !t.IsValid() {
		binary.LittleEndian.PutUint64(t[:8], rand.Uint64()) // #nosec G404 -- an id for joining logs guards nothing
		binary.LittleEndian.PutUint64(t[8:], rand.Uint64()) // #nosec G404 -- as above
	}
	for !s.IsValid() {
		binary.LittleEndian.PutUint64(s[:], rand.Uint64()) // #nosec G404 -- as above
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

// parseTraceparent needs a valid s.
func parseTraceparent(s, state string) trace.SpanContext {
	var t trace.TraceID
	var p trace.SpanID
	var f [1]byte
	decodeHex(t[:], s[traceIDStart:traceIDEnd])
	decodeHex(p[:], s[spanIDStart:spanIDEnd])
	decodeHex(f[:], s[flagsStart:traceparentLen])
	// An unreadable tracestate is dropped alone: the parent stays good without it.
	ts, _ := trace.ParseTraceState(state)
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: t, SpanID: p, TraceFlags: trace.TraceFlags(f[0]) & trace.FlagsSampled, TraceState: ts, Remote: true,
	})
}

func decodeHex(dst []byte, s string) {
	for i := range dst {
		dst[i] = nibble(s[2*i])<<4 | nibble(s[2*i+1])
	}
}

func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
