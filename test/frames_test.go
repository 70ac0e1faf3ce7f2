package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"sidecar/internal/brokertest"
)

// table is an encoded AMQP table without its length: the Go client refuses to write some that other clients write and
// the broker takes.
type table []byte

func longstr(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// field adds name, type byte and value bytes.
func (t table) field(name string, kind byte, value []byte) table {
	t = append(append(t, byte(len(name))), name...)
	return append(append(t, kind), value...)
}

// nested is a table that holds a table that holds … depth times.
func nested(depth int) table {
	t := table{}.field("leaf", 'S', longstr([]byte("x")))
	for range depth {
		t = table{}.field("t", 'F', longstr(t))
	}
	return t
}

// nestedArray is an array that holds an array … depth times, as the value of one field.
func nestedArray(depth int) table {
	a := []byte{'t', 1}
	for range depth {
		a = append([]byte{'A'}, longstr(a)...)
	}
	return table{}.field("a", 'A', longstr(a))
}

// wide is a table of n void entries.
func wide(n int) table {
	t := table{}
	for i := range n {
		t = t.field(fmt.Sprintf("k%05d", i), 'V', nil)
	}
	return t
}

// wideArray is an array of n booleans.
func wideArray(n int) table {
	return table{}.field("a", 'A', longstr(bytes.Repeat([]byte{'t', 1}, n)))
}

// TestRawPublisher proves the hand-made tables against the Go client's reader, so that a failure elsewhere is the
// sidecar's.
func TestRawPublisher(t *testing.T) {
	t.Parallel()
	b := dialBroker(t)
	if err := b.declare("raw", nil); err != nil {
		t.Fatal(err)
	}
	headers := table{}.field("a", 'S', longstr([]byte("b"))).field("n", 'F', longstr(nested(3)))
	if err := brokertest.DialRaw(t, brokertest.URL(t)).Publish("", "raw", headers, []byte("{}")); err != nil {
		t.Fatal(err)
	}
	if d := b.take("raw", 1)[0]; d.Headers["a"] != "b" || d.Headers["n"] == nil || string(d.Body) != "{}" {
		t.Errorf("returned with headers %v, body %q", d.Headers, d.Body)
	}
}
