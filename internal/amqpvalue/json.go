package amqpvalue

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	amqp "github.com/rabbitmq/amqp091-go"
)

// Bounds of a value that is read from JSON.
const (
	// maxWire is the largest value on the wire, in bytes: properties and headers must fit one frame of the broker.
	maxWire = 128 << 10
	// maxJSON is the longest JSON text of such a value: no byte of the value takes more than the six of \u0000.
	maxJSON = 6 * maxWire
	// MaxMemory is how much memory a value may take, in bytes, by the estimates below.
	MaxMemory = 1 << 20
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
func JSONCost(n int) int64 { return int64(min(memoryRatio*n, MaxMemory+maxWire)) }

// ParseTable reads a JSON object as a header table, without the names for which skip returns true; null is a nil table.
// It stops, with an error that names the header, when the table cannot fit a frame of the broker, takes too much memory
// or is nested deeper than MaxDepth. cost is the memory of the table in bytes, at most JSONCost(len(raw)).
func ParseTable(raw []byte, skip func(name string) bool) (t amqp.Table, cost int64, err error) {
	return parseTable(raw, nil, skip, MaxMemory)
}

// parseTable is ParseTable within most bytes of memory. types is what appendTypes has written, as parseValue reads it.
func parseTable(raw []byte, types amqp.Table, skip func(name string) bool, most int) (amqp.Table, int64, error) {
	r, err := newReader(raw, most)
	if err != nil {
		return nil, 0, err
	}
	switch r.PeekKind() {
	case 'n':
		return nil, 0, nil
	case '{':
		t, err := r.table(types, skip)
		return t, int64(r.cost), err
	}
	return nil, 0, errors.New("not a JSON object")
}

// ParseValue reads any JSON as a value of AMQP, within the same bounds: an object as a Table, a whole number as an
// int64, any other number as a float64.
func ParseValue(raw []byte) (any, error) { return parseValue(raw, MaxMemory) }

func parseValue(raw []byte, most int) (any, error) {
	r, err := newReader(raw, most)
	if err != nil {
		return nil, err
	}
	return r.value(nil)
}

// Lenient are options of a decoder that leave names that are there twice, and bytes that are not UTF-8, to the caller.
var Lenient = []jsontext.Options{jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)}

// DecodeJSON returns a decoder of a text that is exactly one JSON value: its methods cannot fail. It holds no copy of
// the text.
func DecodeJSON(raw []byte) (*jsontext.Decoder, error) {
	if !jsontext.Value(raw).IsValid(Lenient...) {
		return nil, cmp.Or(json.Unmarshal(raw, new(any)), errors.New("not JSON")) // the text of the first is clearer
	}
	return jsontext.NewDecoder(bytes.NewBuffer(raw), Lenient...), nil
}

// jsonReader reads JSON and counts the bytes of its values.
type jsonReader struct {
	*jsontext.Decoder

	wire, cost, most int // most is the bound of cost
}

func newReader(raw []byte, most int) (r jsonReader, err error) {
	if len(raw) > maxJSON {
		return r, fmt.Errorf("%d bytes of JSON cannot fit a frame of %d bytes", len(raw), maxWire)
	}
	r.most = most
	r.Decoder, err = DecodeJSON(raw)
	return r, err
}

// charge adds the size of a value, on the wire and in memory, and returns an error when a sum is too large.
func (r *jsonReader) charge(wire, cost int) error {
	r.wire += wire
	r.cost += cost
	switch {
	case r.wire > maxWire:
		return fmt.Errorf("with everything before it too large for a frame of %d bytes", maxWire)
	case r.cost > r.most:
		return fmt.Errorf("with everything before it more than %d bytes in memory", r.most)
	}
	return nil
}

// value reads a value. types is nil, the name of its type, or the types of what is in it.
func (r *jsonReader) value(types any) (any, error) {
	kind := r.PeekKind()
	name, isSingle := types.(string)
	within, isTable := types.(amqp.Table)
	list, isList := types.([]any)
	switch {
	case isSingle:
	case (kind == '{' || kind == '[') && r.StackDepth() > MaxDepth:
		return nil, fmt.Errorf("nested more than %d deep", MaxDepth)
	case kind == '{' && !isList:
		return r.table(within, nil)
	case kind == '[' && !isTable:
		return r.list(list)
	case types != nil:
		return nil, errors.New("not what its type says")
	}
	raw, _ := r.ReadValue()
	read := readPlain
	if isSingle {
		read = func(raw []byte) (any, error) { return readTyped(name, raw) }
	}
	v, err := read(raw)
	if err != nil {
		return nil, err
	}
	size, _ := fieldSize(v)
	cost := costOfText + size*5/4
	switch v.(type) {
	case nil, bool, int64, float64:
		cost = costOfNumber
	}
	return v, r.charge(size, cost)
}

// readPlain reads a single value whose type JSON alone gives.
func readPlain(raw []byte) (any, error) {
	switch c := raw[0]; c {
	case '"':
		return unquote(raw), nil
	case 't', 'f':
		return c == 't', nil
	case 'n':
		return nil, nil
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

// table reads an object. skip is nil for a table within the header table.
func (r *jsonReader) table(types amqp.Table, skip func(name string) bool) (amqp.Table, error) {
	if err := r.charge(5, costOfTable); err != nil {
		return nil, err
	}
	t := amqp.Table{}
	_, _ = r.ReadToken()
	for r.PeekKind() != '}' {
		quoted, _ := r.ReadValue()
		text := unquote(quoted)
		kind, listed := types[text]
		name, err := text, error(nil)
		if listed {
			name, err = decodeName(text)
		}
		if skip != nil && skip(name) {
			_ = r.SkipValue()
			continue
		}
		if err == nil {
			err = r.entry(t, name, kind)
		}
		switch {
		case err != nil && skip != nil:
			return nil, fmt.Errorf("header %.100q: %w", text, err)
		case err != nil:
			return nil, err
		}
	}
	_, _ = r.ReadToken()
	return t, nil
}

// entry reads the value of a name and puts it into t.
func (r *jsonReader) entry(t amqp.Table, name string, types any) error {
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
	value, err := r.value(types)
	t[name] = value
	return err
}

func (r *jsonReader) list(types []any) (any, error) {
	if err := r.charge(5, costOfList); err != nil {
		return nil, err
	}
	list := []any{}
	_, _ = r.ReadToken()
	for r.PeekKind() != ']' {
		if err := r.charge(0, costOfElement); err != nil {
			return nil, err
		}
		var kind any
		if len(list) < len(types) {
			kind = types[len(list)]
		}
		value, err := r.value(kind)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	_, _ = r.ReadToken()
	return list, nil
}

// unquote returns the text of a JSON string.
func unquote(quoted []byte) string {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1 : len(quoted)-1])
	}
	s, _ := jsontext.AppendUnquote(nil, quoted) // it is valid
	return string(s)
}
