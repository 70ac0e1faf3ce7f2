package message

import (
	"errors"
	"fmt"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Bounds of a header table that is read from JSON.
const (
	// maxTable is how large a table may be on the wire, in bytes: properties and headers have to fit one frame of the broker.
	maxTable = 128 << 10
	// maxTableJSON is how long the text of such a table may be: no byte of it takes more than the six of \u0000.
	maxTableJSON = 6 * maxTable
	// maxDecoded is how much memory a table may take, as estimated below.
	maxDecoded = 1 << 20
	// decodedRatio is how many bytes of memory a byte of JSON takes at most: of tables within tables each takes a map with one
	// entry, and five bytes, {"":}.
	decodedRatio = 100
)

// What a value takes in memory, in bytes, with what the allocator and the growth of maps and slices add.
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

// JSONCost is how many bytes of memory TableFromJSON or ValueFromJSON takes at most for a text of n bytes.
func JSONCost(n int) int64 { return int64(min(decodedRatio*n, maxDecoded+maxTable)) }

// TableFromJSON reads a JSON object as a header table, without the names that are Reserved. It returns nil for an empty text
// and for null. The values of headers may be nested maxDepth deep. It stops, with an error that names the header, as soon
// as the table cannot fit a frame of the broker or takes too much memory; a text that is too long is not read at all.
func TableFromJSON(raw []byte, maxDepth int) (amqp.Table, error) {
	t, _, err := ReadTable(raw, maxDepth)
	return t, err
}

// ReadTable is TableFromJSON that also returns how many bytes of memory the table takes. It is at most JSONCost(len(raw)).
func ReadTable(raw []byte, maxDepth int) (t amqp.Table, cost int64, err error) {
	r, err := newJSONReader(raw, maxDepth)
	if err != nil || len(raw) == 0 {
		return nil, 0, err
	}
	switch r.skip(0); r.rest[0] {
	case '{':
		t, err = r.headers()
		return t, int64(r.cost), err
	case 'n':
		return nil, 0, nil
	}
	return nil, 0, errors.New("not a JSON object")
}

// ValueFromJSON reads any JSON as a value that AMQP has, within the same bounds: an object as a Table, a whole number as an
// int64, any other number as a float64.
func ValueFromJSON(raw []byte, maxDepth int) (any, error) {
	r, err := newJSONReader(raw, maxDepth)
	if err != nil {
		return nil, err
	}
	if len(raw) == 0 {
		return nil, CheckJSON(raw)
	}
	return r.value(0)
}

func newJSONReader(raw []byte, maxDepth int) (*jsonReader, error) {
	if len(raw) > maxTableJSON {
		return nil, fmt.Errorf("%d bytes of JSON cannot fit a frame of %d bytes", len(raw), maxTable)
	}
	if len(raw) > 0 {
		if err := CheckJSON(raw); err != nil {
			return nil, err
		}
	}
	return &jsonReader{rest: raw, maxDepth: maxDepth}, nil
}

func (r *jsonReader) headers() (amqp.Table, error) {
	t := amqp.Table{}
	if err := r.take(4, costOfTable); err != nil {
		return nil, err
	}
	r.rest = r.rest[1:]
	for r.more('}') {
		name := r.text()
		r.skip(':')
		if Reserved(name) {
			r.raw()
			continue
		}
		if err := r.entry(t, name, 1); err != nil {
			return nil, fmt.Errorf("header %.100q: %w", name, err)
		}
	}
	return t, nil
}

// take counts what a value takes on the wire and in memory.
func (r *jsonReader) take(wire, cost int) error {
	r.wire += wire
	r.cost += cost
	switch {
	case r.wire > maxTable:
		return fmt.Errorf("with everything before it too large for a frame of %d bytes", maxTable)
	case r.cost > maxDecoded:
		return fmt.Errorf("with everything before it more than %d bytes in memory", maxDecoded)
	}
	return nil
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

func (r *jsonReader) value(depth int) (any, error) {
	if depth > r.maxDepth {
		return nil, fmt.Errorf("nested more than %d deep", r.maxDepth)
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
		if err := r.entry(t, name, depth+1); err != nil {
			return nil, err
		}
	}
	return t, nil
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
