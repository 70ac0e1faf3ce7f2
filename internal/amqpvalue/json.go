package amqpvalue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Bounds of a value that is read from JSON.
const (
	// maxWire is the largest value on the wire, in bytes: properties and headers must fit one frame of the broker.
	maxWire = 128 << 10
	// maxJSON is the longest JSON text of such a value: no byte of the value takes more than the six of \u0000.
	maxJSON = 6 * maxWire
	// maxMemory is how much memory a value may take, in bytes, by the estimates below.
	maxMemory = 1 << 20
	// memoryRatio is how many bytes of memory a byte of JSON takes at most: a map with one entry for the five of {"":}.
	memoryRatio = 100
)

// The memory of a value, in bytes, with what the allocator adds. TestCostOfDecodedJSON measures it.
const (
	costOfTable   = 48
	costOfEntries = 304 // the first entry of a map makes room for eight
	costOfEntry   = 112
	costOfList    = 48
	costOfElement = 40
	costOfNumber  = 8
	costOfText    = 32 // and its bytes, once for the text itself and a quarter for rounding
)

// JSONCost returns how many bytes of memory ParseTable and ParseValue take at most for a text of n bytes.
func JSONCost(n int) int64 { return int64(min(memoryRatio*n, maxMemory+maxWire)) }

// ParseTable reads a JSON object as a header table, without the names for which skip returns true; null is a nil table.
// It stops, with an error that names the header, when the table cannot fit a frame of the broker, takes too much memory
// or is nested deeper than MaxDepth. cost is the memory of the table in bytes, at most JSONCost(len(raw)).
func ParseTable(raw []byte, skip func(name string) bool) (t amqp.Table, cost int64, err error) {
	if raw, err = check(raw); err != nil || raw[0] == 'n' {
		return nil, 0, err
	}
	if raw[0] != '{' {
		return nil, 0, errors.New("not a JSON object")
	}
	t, r := amqp.Table{}, jsonReader{5, costOfTable}
	for quoted, value := range JSONFields(raw) {
		name := unquote(quoted)
		if skip(name) {
			continue
		}
		if err := r.entry(t, name, value, 1); err != nil {
			return nil, 0, fmt.Errorf("header %.100q: %w", name, err)
		}
	}
	return t, int64(r.cost), nil
}

// ParseValue reads any JSON as a value of AMQP, within the same bounds: an object as a Table, a whole number as an
// int64, any other number as a float64.
func ParseValue(raw []byte) (any, error) {
	raw, err := check(raw)
	if err != nil {
		return nil, err
	}
	return new(jsonReader).value(raw, 0)
}

// check returns a text of one JSON value without the space around it.
func check(raw []byte) ([]byte, error) {
	if len(raw) > maxJSON {
		return nil, fmt.Errorf("%d bytes of JSON cannot fit a frame of %d bytes", len(raw), maxWire)
	}
	return bytes.TrimSpace(raw), CheckJSON(raw)
}

// CheckJSON returns what is wrong with a text that is not exactly one JSON value.
func CheckJSON(raw []byte) error {
	if json.Valid(raw) {
		return nil
	}
	return json.Unmarshal(raw, new(any)) // checks the text before it reads anything
}

// jsonReader reads valid JSON and counts the bytes of its values.
type jsonReader struct{ wire, cost int }

// charge adds the size of a value, on the wire and in memory, and returns an error when a sum is too large.
func (r *jsonReader) charge(wire, cost int) error {
	r.wire += wire
	r.cost += cost
	switch {
	case r.wire > maxWire:
		return fmt.Errorf("with everything before it too large for a frame of %d bytes", maxWire)
	case r.cost > maxMemory:
		return fmt.Errorf("with everything before it more than %d bytes in memory", maxMemory)
	}
	return nil
}

// value reads a value that is in so many objects and lists.
func (r *jsonReader) value(raw []byte, depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("nested more than %d deep", MaxDepth)
	}
	switch c := raw[0]; c {
	case '{':
		return r.table(raw, depth+1)
	case '[':
		return r.list(raw, depth+1)
	case '"':
		s := unquote(raw)
		return s, r.charge(5+len(s), costOfText+len(s)*5/4)
	case 't', 'f':
		return c == 't', r.charge(2, 0)
	case 'n':
		return nil, r.charge(1, 0)
	}
	if err := r.charge(9, costOfNumber); err != nil {
		return nil, err
	}
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is too large for AMQP", raw)
	}
	return f, nil
}

func (r *jsonReader) table(raw []byte, depth int) (any, error) {
	if err := r.charge(5, costOfTable); err != nil {
		return nil, err
	}
	t := amqp.Table{}
	for quoted, value := range JSONFields(raw) {
		if err := r.entry(t, unquote(quoted), value, depth); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// entry reads the value of a name and puts it into t.
func (r *jsonReader) entry(t amqp.Table, name string, raw []byte, depth int) error {
	if _, twice := t[name]; twice {
		return fmt.Errorf("the name %.100q is there twice", name)
	}
	cost := costOfEntry + costOfText + len(name)*5/4
	if len(t) == 0 {
		cost += costOfEntries
	}
	if err := r.charge(1+len(name), cost); err != nil {
		return err
	}
	value, err := r.value(raw, depth)
	t[name] = value
	return err
}

func (r *jsonReader) list(raw []byte, depth int) (any, error) {
	if err := r.charge(5, costOfList); err != nil {
		return nil, err
	}
	list := []any{}
	for _, element := range JSONFields(raw) {
		if err := r.charge(0, costOfElement); err != nil {
			return nil, err
		}
		value, err := r.value(element, depth)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

// JSONFields returns the names and values of a JSON object as they are in the text, which CheckJSON must have accepted,
// or the values of a list without names.
func JSONFields(container []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		rest := separated(container)
		named := rest[0] == '{'
		for rest = separated(rest[1:]); rest[0] != '}' && rest[0] != ']'; rest = separated(rest) {
			var name, value []byte
			if named {
				name, rest = cut(rest)
			}
			if value, rest = cut(separated(rest)); !yield(name, value) {
				return
			}
		}
	}
}

// separated returns the text behind the space, the comma or the colon that separates two values.
func separated(b []byte) []byte {
	for b[0] <= ' ' || b[0] == ',' || b[0] == ':' {
		b = b[1:]
	}
	return b
}

// cut splits valid JSON behind its first value.
func cut(b []byte) (value, rest []byte) {
	n := 0
	switch b[0] {
	case '"':
		n = textEnd(b)
	case '{', '[':
		n = nestedEnd(b)
	default:
		for b[n] > ' ' && b[n] != ',' && b[n] != ']' && b[n] != '}' {
			n++
		}
	}
	return b[:n:n], b[n:]
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	var s string
	_ = json.Unmarshal(quoted, &s) // it is valid
	return s
}

// textEnd is the length of the JSON string at the beginning of b.
func textEnd(b []byte) int {
	for n := 1; ; n++ {
		n += bytes.IndexByte(b[n:], '"')
		escapes := len(b[:n]) - len(bytes.TrimRight(b[:n], `\`))
		if escapes%2 == 0 { // the quote is not escaped
			return n + 1
		}
	}
}

// nestedEnd is the length of the object or the list at the beginning of b.
func nestedEnd(b []byte) int {
	depth := 0
	for n := 0; ; n++ {
		switch b[n] {
		case '"':
			n += textEnd(b[n:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return n + 1
			}
		}
	}
}
