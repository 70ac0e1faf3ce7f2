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

// TypedTable is a header table in JSON, in which every value has its type, as GET /dlq/messages/{ref} shows it:
//
//	{"status":{"type":"int32","value":503},"t":{"type":"table","value":{"count":{"type":"int64","value":3}}}}
//
// Types are void, bool, int8, uint8, int16, uint16, int32, uint32, int64, float32, float64, decimal, string, binary,
// timestamp, array and table. Integers beyond 2^53 and floats that JSON does not have are written as text, binaries as
// base64, timestamps as seconds since 1970. A string that is not UTF-8 has "base64" in the place of "value". A name
// that is not UTF-8, or that begins with "base64:", is written as "base64:" and its bytes.
type TypedTable amqp.Table

// MarshalJSON writes the table.
func (t TypedTable) MarshalJSON() ([]byte, error) {
	w := jsonWriter{limit: math.MaxInt, form: typedForm}
	w.table(amqp.Table(t), 0)
	return w.out, nil
}

// ShortString is a short string in JSON: a string, or {"base64":"…"} when it is not UTF-8.
type ShortString string

// namePrefix begins a name that is written in base64.
const namePrefix = "base64:"

// isCoded reports whether a name is written in base64.
func isCoded(name string) bool { return !utf8.ValidString(name) || strings.HasPrefix(name, namePrefix) }

// maxExact is the largest integer that every JSON reader keeps exactly.
const maxExact = 1 << 53

// TypeOf returns the name of v's type.
func TypeOf(v any) string {
	switch v := v.(type) {
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
	default:
		return reflect.TypeOf(v).String()
	}
}

// types are the types of single values as they are in JSON, but for floats, which may be text that JSON does not have.
var types = map[string]reflect.Type{
	"bool": reflect.TypeFor[bool](), "string": reflect.TypeFor[string](), "decimal": reflect.TypeFor[amqp.Decimal](),
	"int8": reflect.TypeFor[int8](), "int16": reflect.TypeFor[int16](), "int32": reflect.TypeFor[int32](),
	"uint8": reflect.TypeFor[uint8](), "uint16": reflect.TypeFor[uint16](), "uint32": reflect.TypeFor[uint32](),
	"int64": reflect.TypeFor[int64](), "timestamp": reflect.TypeFor[int64](), "binary": reflect.TypeFor[[]byte](),
	base64Text: reflect.TypeFor[[]byte](),
}

// readTyped reads a single value of this type.
func readTyped(kind string, raw []byte) (v any, err error) {
	if kind == "array" || kind == "table" || raw[0] == 'n' {
		err = errors.New("not a single value")
	} else {
		v, err = convert(kind, raw)
	}
	if err != nil {
		return nil, fmt.Errorf("value of type %.40q: %w", kind, err)
	}
	return v, nil
}

// convert returns a single value other than null. Numbers may be in quotes.
func convert(kind string, raw []byte) (any, error) {
	number := bytes.Trim(raw, `"`)
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
		if raw = number; string(raw) == "null" {
			return nil, errors.New("not a number")
		}
	}
	p := reflect.New(t)
	err := json.Unmarshal(raw, p.Interface())
	switch v := p.Elem(); kind {
	case "timestamp":
		return time.Unix(v.Int(), 0), err
	case base64Text:
		return string(v.Bytes()), err
	default:
		return v.Interface(), err
	}
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
