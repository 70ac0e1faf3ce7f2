package dispatch

import (
	"encoding/base64"
	"maps"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxDepth is where common JSON readers give up by default.
const maxDepth = 64

// appendJSON appends v as JSON with sorted keys. It reports false, having done little more than maxValue bytes of
// work, if v is too deep, too long or of a type AMQP does not have.
func appendJSON(dst []byte, v any, depth int) ([]byte, bool) {
	if len(dst) > maxValue || depth > maxDepth {
		return dst, false
	}
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), true
	case string:
		return appendQuoted(dst, v), true
	case []byte:
		if utf8.Valid(v) {
			return appendQuoted(dst, v), true
		}
		dst = append(dst, '"')
		dst = base64.StdEncoding.AppendEncode(dst, v[:min(len(v), maxValue)])
		return append(dst, '"'), true
	case amqp.Table:
		return appendTable(dst, v, depth)
	case []any:
		return appendArray(dst, v, depth)
	}
	if !quoted(v) {
		return appendScalar(dst, v)
	}
	dst, ok := appendScalar(append(dst, '"'), v)
	return append(dst, '"'), ok
}

// quoted reports whether a scalar's text is not a JSON number or truth value.
func quoted(v any) bool {
	switch v := v.(type) {
	case float32:
		return math.IsNaN(float64(v)) || math.IsInf(float64(v), 0)
	case float64:
		return math.IsNaN(v) || math.IsInf(v, 0)
	case time.Time:
		return sayable(v.UTC())
	}
	return false
}

func appendTable(dst []byte, t amqp.Table, depth int) ([]byte, bool) {
	// Every member takes at least five bytes: a table of more is too long already, and not worth sorting.
	if len(t) > maxValue/5 {
		return dst, false
	}
	var ok bool
	dst = append(dst, '{')
	for i, k := range slices.Sorted(maps.Keys(t)) {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendQuoted(dst, k), ':')
		if dst, ok = appendJSON(dst, t[k], depth+1); !ok {
			return dst, false
		}
	}
	return append(dst, '}'), len(dst) <= maxValue
}

func appendArray(dst []byte, a []any, depth int) ([]byte, bool) {
	var ok bool
	dst = append(dst, '[')
	for i, v := range a {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, ok = appendJSON(dst, v, depth+1); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), len(dst) <= maxValue
}

// appendQuoted appends a JSON string; bytes that are not UTF-8 become U+FFFD. It stops beyond the limit of a value,
// where the caller gives up anyway.
func appendQuoted[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	for i := 0; i < len(s) && len(dst) <= maxValue; {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := decodeRune(s[i:])
			dst = utf8.AppendRune(dst, r)
			i += size
			continue
		}
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\n':
			dst = append(dst, '\\', 'n')
		case c == '\r':
			dst = append(dst, '\\', 'r')
		case c == '\t':
			dst = append(dst, '\\', 't')
		case c < 0x20 || c == 0x7f:
			dst = append(dst, '\\', 'u', '0', '0', upperHex[c>>4], upperHex[c&15])
		default:
			dst = append(dst, c)
		}
		i++
	}
	return append(dst, '"')
}

func decodeRune[T string | []byte](s T) (rune, int) {
	return utf8.DecodeRuneInString(string(s[:min(len(s), utf8.UTFMax)]))
}
