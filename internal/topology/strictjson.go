package topology

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// strictDecoder decodes JSON into structs, lists and tables. It collects every problem instead of ending at the first.
type strictDecoder struct {
	json     *jsontext.Decoder // of text that is known to be JSON: its methods cannot fail
	problems []error
	unread   []string // JSON paths of values that are missing or could not be read
}

// decodeStrict decodes raw into a struct. The error is about text that is not JSON.
func decodeStrict(raw []byte, into any) (*strictDecoder, error) {
	twice := jsontext.AllowDuplicateNames(true) // they are reported with all other problems
	_, err := jsontext.AppendFormat(nil, raw, twice)
	if err, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		before := raw[:err.ByteOffset]
		line := bytes.Count(before, []byte("\n")) + 1
		column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
		return nil, fmt.Errorf("line %d, column %d: %w", line, column, err.Err)
	}
	d := &strictDecoder{json: jsontext.NewDecoder(bytes.NewBuffer(raw), twice)}
	d.value("$", reflect.ValueOf(into).Elem())
	return d, nil
}

func (d *strictDecoder) next() jsontext.Token {
	token, _ := d.json.ReadToken()
	return token
}

func (d *strictDecoder) refuse(path, format string, args ...any) {
	d.problems = append(d.problems, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// unreadable refuses a value, and with it everything that rests on the value.
func (d *strictDecoder) unreadable(path, format string, args ...any) {
	d.refuse(path, format, args...)
	d.unread = append(d.unread, path)
}

func (d *strictDecoder) value(path string, v reflect.Value) {
	kind := d.json.PeekKind()
	if v.Kind() == reflect.Pointer {
		if kind == 'n' {
			d.next()
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	kinds, what := wanted(v)
	if strings.IndexByte(kinds, byte(kind)) < 0 {
		value, _ := d.json.ReadValue()
		d.unreadable(path, "must be %s and is %s", what, found(value))
		return
	}
	switch kind {
	case '{':
		if v.Kind() == reflect.Map {
			d.table(path, v)
		} else {
			d.object(path, v)
		}
	case '[':
		d.list(path, v)
	case '"':
		d.text(path, v)
	case '0':
		d.integer(path, v)
	default:
		v.Set(reflect.ValueOf(d.next().Bool()))
	}
}

func (d *strictDecoder) text(path string, v reflect.Value) {
	text := d.next().String()
	if v.Type() != reflect.TypeFor[planDelay]() {
		v.Set(reflect.ValueOf(text).Convert(v.Type()))
		return
	}
	delay, err := time.ParseDuration(text)
	if v.SetInt(int64(delay)); err != nil {
		d.unreadable(path, "%s is not a duration: a number with a unit, such as 500ms, 30s, 5m or 1h30m", brief(text))
	}
}

// integer reads a whole number. An argument becomes an int64: RabbitMQ distinguishes integers from floats.
func (d *strictDecoder) integer(path string, v reflect.Value) {
	number := d.next().String()
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		d.unreadable(path, "%.60s is not a whole number of at most 64 bits, without fraction and exponent", number)
		return
	}
	v.Set(reflect.ValueOf(n).Convert(v.Type()))
}

func (d *strictDecoder) list(path string, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	d.next()
	for i := 0; d.json.PeekKind() != ']'; i++ {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.value(below(path, i), v.Index(i))
	}
	d.next()
}

// table reads an object of any keys. One without keys is nil.
func (d *strictDecoder) table(path string, v reflect.Value) {
	seen := map[string]bool{}
	d.next()
	for d.json.PeekKind() != '}' {
		key := d.key(path, seen)
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		value := reflect.New(v.Type().Elem()).Elem()
		if d.value(below(path, key), value); !value.IsZero() {
			v.SetMapIndex(reflect.ValueOf(key), value)
		}
	}
	d.next()
}

// key reads the name of a field, and refuses a name that was there before.
func (d *strictDecoder) key(path string, seen map[string]bool) string {
	key := d.next().String()
	if seen[key] {
		d.unreadable(below(path, key), "is there twice")
	}
	seen[key] = true
	return key
}

func (d *strictDecoder) object(path string, v reflect.Value) {
	fields, seen := fieldsOf(v.Type()), map[string]bool{}
	d.next()
	for d.json.PeekKind() != '}' {
		key := d.key(path, seen)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			var known []string
			for _, f := range fields {
				known = append(known, f.name)
			}
			d.refuse(below(path, key), "unknown field: known are %s", strings.Join(known, ", "))
			_ = d.json.SkipValue()
			continue
		}
		at, before := v.FieldByIndex(fields[i].Index), len(d.unread)
		d.value(below(path, key), at)
		if words := fields[i].words; len(d.unread) == before && words != nil && !slices.Contains(words, at.String()) {
			d.unreadable(below(path, key), "%s is not one of %s", brief(at.String()), strings.Join(words, ", "))
		}
	}
	d.next()
	for _, f := range fields {
		if f.required && !seen[f.name] {
			d.unreadable(below(path, f.name), "is missing")
		}
	}
}

type field struct {
	reflect.StructField
	name     string
	required bool
	words    []string // its possible values; nil: any
}

// fieldsOf lists the fields of a struct, those of embedded structs among them.
func fieldsOf(t reflect.Type) []field {
	var all []field
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" {
			continue
		}
		one := field{StructField: f, name: name, required: options == ""}
		if words := f.Tag.Get("oneof"); words != "" {
			one.words = strings.Split(words, "|")
		}
		all = append(all, one)
	}
	return all
}

func wanted(v reflect.Value) (kinds, what string) {
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return "{", "an object"
	case reflect.Slice:
		return "[", "a list"
	case reflect.Bool:
		return "tf", "true or false"
	case reflect.Int:
		return "0", "a whole number"
	case reflect.Interface:
		return `"0tf`, "a text, a whole number, true or false"
	case reflect.Int64:
		return `"`, "a duration as a text, such as \"30s\""
	}
	return `"`, "a text"
}

func found(value jsontext.Value) string {
	switch value.Kind() {
	case '"':
		text, _ := jsontext.AppendUnquote(nil, value)
		return "the text " + brief(string(text))
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return fmt.Sprintf("%.60s", value)
}
