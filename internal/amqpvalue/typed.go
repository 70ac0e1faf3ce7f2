package amqpvalue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Typed is one AMQP value in JSON, with its type, so that it can be written back as it was:
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

type typedJSON struct {
	Type   string          `json:"type,omitempty"`
	Value  json.RawMessage `json:"value,omitempty"`
	Base64 []byte          `json:"base64,omitempty"`
}

// namePrefix begins a name that is written in base64.
const namePrefix = "base64:"

// isCoded reports whether a name is written in base64.
func isCoded(name string) bool { return !utf8.ValidString(name) || strings.HasPrefix(name, namePrefix) }

// maxExact is the largest integer that every JSON reader keeps exactly.
const maxExact = 1 << 53

// MarshalJSON writes v with its type. A value that no broker can have sent becomes its text.
func (v Typed) MarshalJSON() ([]byte, error) {
	if s, ok := v.V.(string); ok && !utf8.ValidString(s) {
		return json.Marshal(typedJSON{Type: "string", Base64: []byte(s)})
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

// UnmarshalJSON is the reverse of MarshalJSON. It accepts only what MarshalJSON can write.
func (v *Typed) UnmarshalJSON(b []byte) (err error) {
	var j typedJSON
	if err := UnmarshalStrict(b, &j); err != nil {
		return err
	}
	switch {
	case j.Base64 != nil && (j.Type != "string" || j.Value != nil):
		return errors.New("base64 is for strings without a value")
	case j.Base64 != nil:
		v.V = string(j.Base64)
		return nil
	case (j.Value == nil) != (j.Type == "void"):
		return fmt.Errorf("a value of type %.40q needs a value, unless it is void", j.Type)
	case string(j.Value) == "null":
		return errors.New("null is of type void")
	case j.Type == "void":
		v.V = nil
		return nil
	}
	if v.V, err = readTyped(j.Type, j.Value); err != nil {
		return fmt.Errorf("value of type %.40q: %w", j.Type, err)
	}
	return nil
}

// types are the types of values as they are in JSON, but for floats, which may be text that JSON does not have.
var types = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](), "decimal": reflect.TypeFor[amqp.Decimal](),
	"int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](), "int32": reflect.TypeFor[int32](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "uint32": reflect.TypeFor[uint32](),
	"int64": reflect.TypeFor[int64](), "timestamp": reflect.TypeFor[int64](), "binary": reflect.TypeFor[[]byte](),
	"array": reflect.TypeFor[[]Typed](), "table": reflect.TypeFor[TypedTable](),
}

// readTyped returns the value of a type other than void. Numbers may be in quotes.
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
		b = number
	}
	p := reflect.New(t)
	err := UnmarshalStrict(b, p.Interface())
	v := p.Elem().Interface()
	switch v := v.(type) {
	case []Typed:
		a := make([]any, len(v))
		for i, e := range v {
			a[i] = e.V
		}
		return a, err
	case TypedTable:
		return amqp.Table(v), err
	case int64:
		if kind == "timestamp" {
			return time.Unix(v, 0), err
		}
	}
	return v, err
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

// UnmarshalJSON is the reverse of MarshalJSON.
func (t *TypedTable) UnmarshalJSON(b []byte) error {
	var m map[string]Typed
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	*t = make(TypedTable, len(m))
	for k, v := range m {
		name, err := decodeName(k)
		if err != nil {
			return err
		}
		(*t)[name] = v.V
	}
	return nil
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

// UnmarshalJSON is the reverse of MarshalJSON.
func (s *ShortString) UnmarshalJSON(b []byte) error {
	v, err := ParseValue(b)
	if err == nil && v != nil {
		err = setText((*string)(s), v)
	}
	return err
}

// UnmarshalStrict reads exactly one JSON value, without unknown fields.
func UnmarshalStrict(b []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("unexpected data after the JSON value")
	}
	return nil
}
