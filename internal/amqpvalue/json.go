package amqpvalue

import (
	"errors"
	"fmt"
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
	// memoryRatio is how many bytes of memory a byte of JSON takes at most: each of nested tables takes a map with one
	// entry, and five bytes, {"":}.
	memoryRatio = 100
)

// The memory of a value, in bytes, with the overhead of the allocator and of growing maps and slices.
// TestCostOfDecodedJSON measures it.
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
	r, err := newJSONReader(raw)
	if err != nil {
		return nil, 0, err
	}
	if c := r.rest[0]; c != '{' && c != 'n' {
		return nil, 0, errors.New("not a JSON object")
	}
	r.skipName = skip
	v, err := r.value(0)
	t, _ = v.(amqp.Table)
	return t, int64(r.cost), err
}

// ParseValue reads any JSON as a value of AMQP, within the same bounds: an object as a Table, a whole number as an
// int64, any other number as a float64.
func ParseValue(raw []byte) (any, error) {
	r, err := newJSONReader(raw)
	if err != nil {
		return nil, err
	}
	return r.value(0)
}

func newJSONReader(raw []byte) (*jsonReader, error) {
	if len(raw) > maxJSON {
		return nil, fmt.Errorf("%d bytes of JSON cannot fit a frame of %d bytes", len(raw), maxWire)
	}
	if err := CheckJSON(raw); err != nil {
		return nil, err
	}
	r := &jsonReader{rest: raw}
	r.skip(0)
	return r, nil
}

// take counts a value on the wire and in memory.
func (r *jsonReader) take(wire, cost int) error {
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

func (r *jsonReader) value(depth int) (any, error) {
	if depth > MaxDepth {
		return nil, fmt.Errorf("nested more than %d deep", MaxDepth)
	}
	r.skip(0)
	switch c := r.rest[0]; c {
	case '{':
		return r.table(depth)
	case '[':
		return r.list(depth)
	case '"':
		s := r.text()
		return s, r.take(5+len(s), costOfText+len(s)*5/4)
	case 't', 'f':
		r.raw()
		return c == 't', r.take(2, 0)
	case 'n':
		r.raw()
		return nil, r.take(1, 0)
	}
	if err := r.take(9, costOfNumber); err != nil {
		return nil, err
	}
	return number(string(r.raw()))
}

func number(text string) (any, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, fmt.Errorf("the number %.40s is too large for AMQP", text)
	}
	return f, nil
}

func (r *jsonReader) table(depth int) (any, error) {
	if err := r.take(5, costOfTable); err != nil {
		return nil, err
	}
	t := amqp.Table{}
	r.rest = r.rest[1:]
	for r.more('}') {
		name := r.text()
		r.skip(':')
		isHeader := depth == 0 && r.skipName != nil
		if isHeader && r.skipName(name) {
			r.raw()
			continue
		}
		err := r.entry(t, name, depth+1)
		if err != nil && isHeader {
			err = fmt.Errorf("header %.100q: %w", name, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return t, nil
}

// entry reads the value of a name and puts it into t.
func (r *jsonReader) entry(t amqp.Table, name string, depth int) error {
	if _, twice := t[name]; twice {
		return fmt.Errorf("the name %.100q is there twice", name)
	}
	cost := costOfEntry + costOfText + len(name)*5/4
	if len(t) == 0 {
		cost += costOfEntries
	}
	if err := r.take(1+len(name), cost); err != nil {
		return err
	}
	value, err := r.value(depth)
	t[name] = value
	return err
}

func (r *jsonReader) list(depth int) (any, error) {
	if err := r.take(5, costOfList); err != nil {
		return nil, err
	}
	list := []any{}
	r.rest = r.rest[1:]
	for r.more(']') {
		if err := r.take(0, costOfElement); err != nil {
			return nil, err
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}
