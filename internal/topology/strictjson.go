package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// strictDecoder decodes JSON into structs, lists and tables. It collects every problem instead of ending at the first.
type strictDecoder struct {
	json     *json.Decoder
	problems []error
	unread   []string // JSON paths of values that are missing or could not be read
}

// decodeStrict decodes raw into a struct. The error is about text that is not JSON.
func decodeStrict(raw []byte, into any) (*strictDecoder, error) {
	if err := checkSyntax(raw); err != nil {
		return nil, err
	}
	d := &strictDecoder{json: json.NewDecoder(bytes.NewReader(raw))}
	d.json.UseNumber()
	d.value("$", reflect.ValueOf(into).Elem())
	return d, nil
}

// checkSyntax reports where raw is not UTF-8 or not JSON.
func checkSyntax(raw []byte) error {
	at, fault := len(raw), ""
	var whole json.RawMessage
	if err, ok := errors.AsType[*json.SyntaxError](json.Unmarshal(raw, &whole)); ok {
		fault = err.Error()
		if !strings.HasPrefix(fault, "unexpected end") {
			at = max(int(err.Offset)-1, 0)
		}
	}
	if !utf8.Valid(raw) {
		fault = "the file is not UTF-8"
		for at = 0; utf8.FullRune(raw[at:]); {
			r, size := utf8.DecodeRune(raw[at:])
			if r == utf8.RuneError && size == 1 {
				break
			}
			at += size
		}
	}
	if fault == "" {
		return nil
	}
	line := bytes.Count(raw[:at], []byte("\n")) + 1
	column := utf8.RuneCount(raw[bytes.LastIndexByte(raw[:at], '\n')+1:at]) + 1
	return fmt.Errorf("line %d, column %d: %s", line, column, fault)
}

// next returns the next token of text that is known to be JSON.
func (d *strictDecoder) next() json.Token {
	token, _ := d.json.Token()
	return token
}

// skip passes over the rest of the value that begins with token.
func (d *strictDecoder) skip(token json.Token) {
	for depth := 0; ; token = d.next() {
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return
		}
	}
}

func (d *strictDecoder) refuse(path, format string, args ...any) {
	d.problems = append(d.problems, fmt.Errorf("%s: %s", path, fmt.Sprintf(format, args...)))
}

// unreadable refuses a value, and with it everything that rests on the value.
func (d *strictDecoder) unreadable(path, format string, args ...any) {
	d.refuse(path, format, args...)
	d.unread = append(d.unread, path)
}

var delayType = reflect.TypeFor[planDelay]()

// value reads one value into v.
func (d *strictDecoder) value(path string, v reflect.Value) {
	token := d.next()
	if v.Kind() == reflect.Pointer {
		if token == nil {
			return
		}
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	text, isText := token.(string)
	_, isBool := token.(bool)
	number, isNumber := token.(json.Number)
	argument := v.Kind() == reflect.Interface
	switch {
	case token == json.Delim('{') && v.Kind() == reflect.Struct:
		d.object(path, v)
	case token == json.Delim('{') && v.Kind() == reflect.Map:
		d.table(path, v)
	case token == json.Delim('[') && v.Kind() == reflect.Slice:
		d.list(path, v)
	case isText && v.Type() == delayType:
		delay, err := time.ParseDuration(text)
		if v.SetInt(int64(delay)); err != nil {
			d.unreadable(path, "%s is not a duration: a number with a unit, such as 500ms, 30s, 5m or 1h30m", brief(text))
		}
	case isNumber && (argument || v.Kind() == reflect.Int):
		d.integer(path, v, number)
	case isText && v.Kind() == reflect.String:
		v.SetString(text)
	case isText && argument, isBool && (argument || v.Kind() == reflect.Bool):
		v.Set(reflect.ValueOf(token))
	default:
		d.unreadable(path, "must be %s and is %s", wanted(v), found(token))
		d.skip(token)
	}
}

// integer reads a whole number. An argument becomes an int64: RabbitMQ distinguishes integers from floats.
func (d *strictDecoder) integer(path string, v reflect.Value, number json.Number) {
	n, err := strconv.ParseInt(number.String(), 10, 64)
	if err != nil {
		d.unreadable(path, "%.60s is not a whole number of at most 64 bits, without fraction and exponent", number)
		return
	}
	if v.Kind() == reflect.Interface {
		v.Set(reflect.ValueOf(n))
	} else {
		v.SetInt(n)
	}
}

func (d *strictDecoder) list(path string, v reflect.Value) {
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for i := 0; d.json.More(); i++ {
		v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
		d.value(below(path, i), v.Index(i))
	}
	d.next()
}

// table reads an object of any keys. One without keys is nil.
func (d *strictDecoder) table(path string, v reflect.Value) {
	seen := map[string]bool{}
	for d.json.More() {
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
	key, _ := d.next().(string)
	if seen[key] {
		d.unreadable(below(path, key), "is there twice")
	}
	seen[key] = true
	return key
}

func (d *strictDecoder) object(path string, v reflect.Value) {
	fields, seen := fieldsOf(v.Type()), map[string]bool{}
	for d.json.More() {
		key := d.key(path, seen)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		if i < 0 {
			var known []string
			for _, f := range fields {
				known = append(known, f.name)
			}
			d.refuse(below(path, key), "unknown field: known are %s", strings.Join(known, ", "))
			d.skip(d.next())
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

// field is a field of a struct as its tags describe it.
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
		if f.Anonymous || f.Tag.Get("json") == "-" {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		one := field{StructField: f, name: name, required: options == ""}
		if words := f.Tag.Get("oneof"); words != "" {
			one.words = strings.Split(words, "|")
		}
		all = append(all, one)
	}
	return all
}

// wanted says what v takes.
func wanted(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice:
		return "a list"
	case reflect.Bool:
		return "true or false"
	case reflect.Int:
		return "a whole number"
	case reflect.Interface:
		return "a text, a whole number, true or false"
	case reflect.Int64:
		return "a duration as a text, such as \"30s\""
	}
	return "a text"
}

// found says what a token begins.
func found(token json.Token) string {
	switch token := token.(type) {
	case nil:
		return "null"
	case string:
		return "the text " + brief(token)
	case json.Delim:
		return map[json.Delim]string{'{': "an object", '[': "a list"}[token]
	}
	return fmt.Sprintf("%.60v", token)
}
