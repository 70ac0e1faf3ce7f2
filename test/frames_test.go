package test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The Go client refuses to write some tables that other clients write and the broker takes. This is the smallest AMQP
// publisher that refuses nothing: it puts bytes that the test made into the header table of a message.

// table is an encoded AMQP table without its length.
type table []byte

func shortstr(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func longstr(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

// field adds name, type byte and value bytes.
func (t table) field(name string, kind byte, value []byte) table {
	t = append(t, shortstr(name)...)
	t = append(t, kind)
	return append(t, value...)
}

func (t table) text(name, value string) table { return t.field(name, 'S', longstr([]byte(value))) }

// nested is a table that holds a table that holds … depth times.
func nested(depth int) table {
	t := table{}.text("leaf", "x")
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

const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3
)

type framer struct {
	c net.Conn
	r *bufio.Reader
}

func (f *framer) send(kind byte, channel uint16, payload []byte) error {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint16(b, channel)
	b = append(b, longstr(payload)...)
	_, err := f.c.Write(append(b, 0xCE))
	return err
}

func (f *framer) method(channel, class, method uint16, args ...[]byte) error {
	b := binary.BigEndian.AppendUint16(nil, class)
	b = binary.BigEndian.AppendUint16(b, method)
	return f.send(frameMethod, channel, append(b, bytes.Join(args, nil)...))
}

// expect reads up to the method class.method; connection.close and channel.close are errors.
func (f *framer) expect(class, method uint16) error {
	for {
		head := make([]byte, 7)
		if _, err := io.ReadFull(f.r, head); err != nil {
			return err
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(f.r, payload); err != nil {
			return err
		}
		if head[0] != frameMethod {
			continue
		}
		c, m := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
		switch {
		case c == class && m == method:
			return nil
		case c == 10 && m == 50, c == 20 && m == 40:
			return fmt.Errorf("the broker refuses: %q", payload[6:])
		}
	}
}

// publishRaw publishes one persistent message with that id and header table; an error is the broker's refusal.
func publishRaw(t testing.TB, exchange, key, id string, headers table) error {
	t.Helper()
	u, err := amqp.ParseURI(brokerURL)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.DialTimeout("tcp", brokerAddr(t), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(patience))
	f := &framer{c: c, r: bufio.NewReader(c)}

	steps := []func() error{
		func() error { return write(c, "AMQP\x00\x00\x09\x01") },
		func() error { return f.expect(10, 10) },
		func() error {
			secret := longstr([]byte("\x00" + u.Username + "\x00" + u.Password))
			return f.method(0, 10, 11, longstr(nil), shortstr("PLAIN"), secret, shortstr("en_US"))
		},
		func() error { return f.expect(10, 30) },
		func() error { return f.method(0, 10, 31, []byte{0, 1}, []byte{0, 2, 0, 0}, []byte{0, 0}) }, // 128 KiB frames
		func() error { return f.method(0, 10, 40, shortstr(u.Vhost), []byte{0}, []byte{0}) },
		func() error { return f.expect(10, 41) },
		func() error { return f.method(1, 20, 10, []byte{0}) },
		func() error { return f.expect(20, 11) },
		func() error { return f.method(1, 85, 10, []byte{0}) },
		func() error { return f.expect(85, 11) },
		func() error { return f.method(1, 60, 40, []byte{0, 0}, shortstr(exchange), shortstr(key), []byte{0}) },
		func() error { return f.send(frameHeader, 1, contentHeader(headers, id)) },
		func() error { return f.send(frameBody, 1, []byte("{}")) },
		func() error { return f.expect(60, 80) },
	}
	for i, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

func write(c net.Conn, s string) error {
	_, err := io.WriteString(c, s)
	return err
}

// contentHeader is the content header: class 60, body size 2, and the properties headers, delivery-mode and message-id.
func contentHeader(headers table, id string) []byte {
	b := []byte{0, 60, 0, 0}
	b = binary.BigEndian.AppendUint64(b, 2)
	b = binary.BigEndian.AppendUint16(b, 1<<13|1<<12|1<<7)
	b = append(b, longstr(headers)...)
	b = append(b, 2)
	return append(b, shortstr(id)...)
}
