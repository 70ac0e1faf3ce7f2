package amqpvalue

import (
	"fmt"
	"math"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Copy returns v as the client library can write it. Almost every received value can be written as it is; any other
// becomes the nearest type, in the end its text. Names longer than ShortMax are left out. Texts and bytes are shared
// with v.
func Copy(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		return CopyTable(v)
	case map[string]any:
		return CopyTable(v)
	case []any:
		return CopyArray(v)
	case int:
		return int64(v) // the library would cut an int to 32 bits
	case uint:
		return Copy(uint64(v))
	case uint64:
		if v <= math.MaxInt64 {
			return int64(v)
		}
	default:
		if _, err := fieldSize(v); err == nil {
			return v
		}
	}
	return fmt.Sprint(v)
}

// CopyTable returns Copy of each value of t.
func CopyTable(t amqp.Table) amqp.Table {
	c := make(amqp.Table, len(t))
	for k, v := range t {
		if len(k) <= ShortMax {
			c[k] = Copy(v)
		}
	}
	return c
}

// CopyArray returns Copy of each value of a.
func CopyArray(a []any) []any {
	c := make([]any, len(a))
	for i, v := range a {
		c[i] = Copy(v)
	}
	return c
}

// Count returns v as a count, clamped to 2^31-1. ok is false if v is not an integer or is negative.
func Count(v any) (n int, ok bool) {
	i, ok := integer(v)
	if u, isUint64 := v.(uint64); isUint64 {
		i, ok = int64(min(u, math.MaxInt32)), true // #nosec G115 -- clamped
	}
	if !ok || i < 0 {
		return 0, false
	}
	return int(min(i, math.MaxInt32)), true
}

// integer returns any integer of AMQP, or an int, as an int64.
func integer(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case int32:
		return int64(v), true
	case int16:
		return int64(v), true
	case int8:
		return int64(v), true
	case uint8:
		return int64(v), true
	case uint16:
		return int64(v), true
	case uint32:
		return int64(v), true
	case int:
		return int64(v), true
	}
	return 0, false
}
