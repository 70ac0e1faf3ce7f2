package amqpvalue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Typed is one AMQP value in JSON, with its type, as GET /dlq/messages/{ref} shows it:
//
//	{"type":"int32","value":503}
//	{"type":"table","value":{"count":{"type":"int64","value":3}}}
//
// Types are void, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, decimal, string, binary,
// timestamp, array and table. Integers beyond 2^53 and floats that JSON does not have are written as text, binaries as
// base64, timestamps as seconds since 1970. A string that is not UTF-8 has "base64" in the place of "value".
type Typed struct{ V any }

// TypedTable is a header table in JSON: an object of Typed values. A name that is not UTF-8, or that begins with
// "base64:", is written as "base64:" and its bytes.
type TypedTable amqp.Table

// ShortString is a short string in JSON: a string, or {"base64":"…"} when it is not UTF-8.
type ShortString string

// namePrefix begins a name that is written in base64.
const namePrefix = "base64:"

// isCoded reports whether a name is written in base64.
func isCoded(name string) bool { return !utf8.ValidString(name) || strings.HasPrefix(name, namePrefix) }

// maxExact is the largest integer that every JSON reader keeps exactly.
const maxExact = 1 << 53

// MarshalJSON writes v with its type. A value that no broker can have sent becomes its text.
func (v Typed) MarshalJSON() ([]byte, error) {
	if s, ok := v.V.(string); ok && !utf8.ValidString(s) {
		return json.Marshal(struct {
			Type   string `json:"type"`
			Base64 []byte `json:"base64"`
		}{"string", []byte(s)})
	}
	return json.Marshal(struct {
		Type  string `json:"type"`
		Value any    `json:"value,omitempty"`
	}{v.Type(), v.value()})
}

// Type returns the name of v's type.
func (v Typed) Type() string {
	switch v := v.V.(type) {
	case nil:
		return "void"
	case int:
		return "int32"
	case amqp.Decimal:
		return "decimal"
	case []byte:
		return "binary"
	case time.Time:
		return "timestamp"
	case []any:
		return "array"
	case amqp.Table:
		return "table"
	case bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64:
		return reflect.TypeOf(v).String()
	}
	return "string"
}

// value returns the value that represents v in JSON.
func (v Typed) value() any {
	switch x := v.V.(type) {
	case nil:
		return nil
	case int64:
		return readable(x)
	case time.Time:
		return readable(x.Unix())
	case []any:
		list := make([]Typed, len(x))
		for i, e := range x {
			list[i] = Typed{e}
		}
		return list
	case amqp.Table:
		return TypedTable(x)
	}
	if v.Type() == "string" {
		return fmt.Sprint(v.V)
	}
	w := jsonWriter{limit: math.MaxInt}
	w.exact(v.V)
	return json.RawMessage(w.out)
}

// readable returns n, or its text if some JSON readers would not keep it exactly.
func readable(n int64) any {
	if n > maxExact || n < -maxExact {
		return strconv.FormatInt(n, 10)
	}
	return n
}

// types are the types of single values as they are in JSON, but for floats, which may be text that JSON does not have.
var types = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](), "decimal": reflect.TypeFor[amqp.Decimal](),
	"int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](), "int32": reflect.TypeFor[int32](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "uint32": reflect.TypeFor[uint32](),
	"int64": reflect.TypeFor[int64](), "timestamp": reflect.TypeFor[int64](), "binary": reflect.TypeFor[[]byte](),
}

// readTyped returns a single value other than null. Numbers may be in quotes.
func readTyped(kind string, b []byte) (any, error) {
	number := bytes.Trim(b, `"`)
	switch kind {
	case "float32":
		f, err := strconv.ParseFloat(string(number), 32)
		return float32(f), err
	case "float64":
		return strconv.ParseFloat(string(number), 64)
	case "timestamp":
		if at, err := time.Parse(time.RFC3339, string(number)); err == nil {
			return time.Unix(at.Unix(), 0), nil
		}
	}
	t, known := types[kind]
	if !known {
		return nil, errors.New("unknown type")
	}
	if t.ConvertibleTo(reflect.TypeFor[int64]()) {
		if b = number; string(b) == "null" {
			return nil, errors.New("not a number")
		}
	}
	p := reflect.New(t)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode(p.Interface())
	if err == nil && d.InputOffset() < int64(len(b)) {
		err = errors.New("more than one value")
	}
	if n, ok := reflect.TypeAssert[int64](p.Elem()); ok && kind == "timestamp" {
		return time.Unix(n, 0), err
	}
	return p.Elem().Interface(), err
}

// MarshalJSON writes an object of Typed values.
func (t TypedTable) MarshalJSON() ([]byte, error) {
	m := make(map[string]Typed, len(t))
	for k, v := range t {
		if isCoded(k) {
			k = namePrefix + base64.StdEncoding.EncodeToString([]byte(k))
		}
		m[k] = Typed{v}
	}
	return json.Marshal(m)
}

// decodeName returns a name that may be written in base64.
func decodeName(name string) (string, error) {
	coded, ok := strings.CutPrefix(name, namePrefix)
	if !ok {
		return name, nil
	}
	b, err := base64.StdEncoding.DecodeString(coded)
	if err == nil && !isCoded(string(b)) {
		err = errors.New("need not be in base64")
	}
	if err != nil {
		return "", fmt.Errorf("name %.40q: %w", name, err)
	}
	return string(b), nil
}

// MarshalJSON writes a string or its bytes.
func (s ShortString) MarshalJSON() ([]byte, error) {
	return appendShort(nil, string(s)), nil
}
