package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Value is one AMQP field value in JSON, with its type, so that it can be written back as it was:
//
//	{"type":"int32","value":503}
//	{"type":"table","value":{"count":{"type":"int64","value":3}}}
//
// Types are void, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, decimal, string, binary,
// timestamp, array and table. Integers beyond 2^53 and floats that are no numbers are written as text, binaries as base64,
// timestamps as seconds since 1970. A string that is no UTF-8 has "base64" in the place of "value".
type Value struct{ V any }

// Headers is a header table in JSON: an object of Values. A key that is no UTF-8, or that begins with "base64:", is
// written as "base64:" and its bytes.
type Headers amqp.Table

type jsonValue struct {
	Type   string          `json:"type"`
	Value  json.RawMessage `json:"value,omitempty"`
	Base64 *string         `json:"base64,omitempty"`
}

// maxExact is the largest integer that every JSON reader keeps exactly.
const maxExact = 1 << 53

// MarshalJSON writes v with its type. What no broker can have sent becomes its text.
func (v Value) MarshalJSON() ([]byte, error) {
	kind, plain := describeValue(v.V)
	if s, ok := plain.(string); ok && kind == "string" && !utf8.ValidString(s) {
		b := base64.StdEncoding.EncodeToString([]byte(s))
		return json.Marshal(jsonValue{Type: kind, Base64: &b})
	}
	if plain == nil {
		return json.Marshal(jsonValue{Type: kind})
	}
	raw, err := json.Marshal(plain)
	if err != nil {
		return nil, err
	}
	return json.Marshal(jsonValue{Type: kind, Value: raw})
}

// describeValue returns the name of v's type and what stands for it in JSON.
func describeValue(v any) (kind string, plain any) {
	switch v := v.(type) {
	case nil:
		return "void", nil
	case bool:
		return "bool", v
	case int8:
		return "int8", v
	case uint8:
		return "uint8", v
	case int16:
		return "int16", v
	case uint16:
		return "uint16", v
	case int32:
		return "int32", v
	case uint32:
		return "uint32", v
	case int64:
		if v > maxExact || v < -maxExact {
			return "int64", strconv.FormatInt(v, 10)
		}
		return "int64", v
	case float32:
		return "float32", plainFloat(float64(v), 32)
	case float64:
		return "float64", plainFloat(v, 64)
	case amqp.Decimal:
		return "decimal", map[string]any{"scale": v.Scale, "value": v.Value}
	case string:
		return "string", v
	case []byte:
		return "binary", base64.StdEncoding.EncodeToString(v)
	case time.Time:
		if s := v.Unix(); s > maxExact || s < -maxExact {
			return "timestamp", strconv.FormatInt(s, 10)
		}
		return "timestamp", v.Unix()
	case []any:
		list := make([]Value, len(v))
		for i, e := range v {
			list[i] = Value{e}
		}
		return "array", list
	case amqp.Table:
		return "table", Headers(v)
	}
	return "string", fmt.Sprint(v)
}

// plainFloat is f as a number, or as text when JSON has none for it. Bits are those it is read back with.
func plainFloat(f float64, bits int) any {
	if math.IsNaN(f) || math.IsInf(f, 0) || f == 0 && math.Signbit(f) {
		return strconv.FormatFloat(f, 'g', -1, bits)
	}
	return json.RawMessage(strconv.FormatFloat(f, 'g', -1, bits))
}

// UnmarshalJSON is the reverse of MarshalJSON. It accepts nothing that would not be the same again.
func (v *Value) UnmarshalJSON(b []byte) error {
	var j jsonValue
	if err := strictly(b, &j); err != nil {
		return err
	}
	if j.Base64 != nil {
		if j.Type != "string" || j.Value != nil {
			return errors.New("base64 is for strings without a value")
		}
		s, err := base64.StdEncoding.DecodeString(*j.Base64)
		v.V = string(s)
		return err
	}
	if j.Value == nil && j.Type != "void" {
		return fmt.Errorf("a value of type %.40q is missing", j.Type)
	}
	var err error
	if v.V, err = readValue(j.Type, j.Value); err != nil {
		return fmt.Errorf("value of type %.40q: %w", j.Type, err)
	}
	return nil
}

// readValue makes a field value of its JSON.
func readValue(kind string, b json.RawMessage) (any, error) {
	switch kind {
	case "void":
		if b != nil {
			return nil, errors.New("void has no value")
		}
		return nil, nil //nolint:nilnil // void is nil
	case "bool":
		return plainly[bool](b)
	case "string":
		return plainly[string](b)
	case "decimal":
		var d amqp.Decimal
		err := strictly(b, &d)
		return d, err
	case "binary":
		bytes := []byte{}
		err := json.Unmarshal(b, &bytes)
		return bytes, err
	case "timestamp":
		n, err := integer(b, 64)
		return time.Unix(n, 0), err
	case "array":
		var list []Value
		err := json.Unmarshal(b, &list)
		a := make([]any, len(list))
		for i := range list {
			a[i] = list[i].V
		}
		return a, err
	case "table":
		var h Headers
		err := json.Unmarshal(b, &h)
		return amqp.Table(h), err
	}
	return readNumber(kind, b)
}

//nolint:gosec // every conversion is of a number that was read with as many bits
func readNumber(kind string, b json.RawMessage) (any, error) {
	switch kind {
	case "int8":
		n, err := integer(b, 8)
		return int8(n), err
	case "int16":
		n, err := integer(b, 16)
		return int16(n), err
	case "int32":
		n, err := integer(b, 32)
		return int32(n), err
	case "int64":
		return integer(b, 64)
	case "uint8":
		n, err := unsigned(b, 8)
		return uint8(n), err
	case "uint16":
		n, err := unsigned(b, 16)
		return uint16(n), err
	case "uint32":
		n, err := unsigned(b, 32)
		return uint32(n), err
	case "float32":
		f, err := strconv.ParseFloat(unquoted(b), 32)
		return float32(f), err
	case "float64":
		return strconv.ParseFloat(unquoted(b), 64)
	}
	return nil, errors.New("there is no such type")
}

func plainly[T any](b json.RawMessage) (any, error) {
	var v T
	if string(b) == "null" {
		return nil, errors.New("null is of type void")
	}
	err := json.Unmarshal(b, &v)
	return v, err
}

func unquoted(b json.RawMessage) string { return strings.Trim(string(b), `"`) }

func integer(b json.RawMessage, bits int) (int64, error) {
	return strconv.ParseInt(unquoted(b), 10, bits)
}

func unsigned(b json.RawMessage, bits int) (uint64, error) {
	return strconv.ParseUint(unquoted(b), 10, bits)
}

// keyMark begins a key that stands for bytes.
const keyMark = "base64:"

// MarshalJSON writes an object of Values.
func (h Headers) MarshalJSON() ([]byte, error) {
	m := make(map[string]Value, len(h))
	for k, v := range h {
		if !utf8.ValidString(k) || strings.HasPrefix(k, keyMark) {
			k = keyMark + base64.StdEncoding.EncodeToString([]byte(k))
		}
		m[k] = Value{v}
	}
	return json.Marshal(m)
}

// UnmarshalJSON is the reverse of MarshalJSON.
func (h *Headers) UnmarshalJSON(b []byte) error {
	var m map[string]Value
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*h = make(Headers, len(m))
	for k, v := range m {
		if coded, ok := strings.CutPrefix(k, keyMark); ok {
			key, err := base64.StdEncoding.DecodeString(coded)
			if err != nil {
				return fmt.Errorf("key %.40q: %w", k, err)
			}
			k = string(key)
		}
		(*h)[k] = v.V
	}
	return nil
}

// PlainText is a field value as people read it: containers as JSON without types, bytes that are no text as base64.
func PlainText(v any) string {
	switch v := v.(type) {
	case string:
		return strings.ToValidUTF8(v, "\uFFFD")
	case []byte:
		if utf8.Valid(v) {
			return string(v)
		}
		return base64.StdEncoding.EncodeToString(v)
	case time.Time:
		return v.UTC().Format(time.RFC3339)
	case nil:
		return ""
	case []any, amqp.Table:
		b, err := json.Marshal(plainJSON(v))
		if err == nil {
			return string(b)
		}
	}
	return fmt.Sprint(v)
}

func plainJSON(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = plainJSON(e)
		}
		return list
	case amqp.Table:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[strings.ToValidUTF8(k, "\uFFFD")] = plainJSON(e)
		}
		return m
	case nil, bool, int8, uint8, int16, uint16, int32, uint32, int64:
		return v
	}
	return PlainText(v)
}
