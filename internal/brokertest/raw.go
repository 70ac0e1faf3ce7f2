package brokertest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Raw is an AMQP connection with one confirming channel that sends frames exactly as given: what the client library
// refuses to write, a hostile publisher can still send.
type Raw struct {
	conn net.Conn
	err  error
}

const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3
	frameEnd    = 0xCE
)

// DialRaw opens a Raw connection to the broker at url.
func DialRaw(t testing.TB, url string) *Raw {
	t.Helper()
	uri, err := amqp.ParseURI(url)
	if err != nil {
		t.Fatalf("parse the broker's URL: %v", err)
	}
	conn, err := net.DialTimeout("tcp", net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port)), 10*time.Second)
	if err != nil {
		t.Fatalf("connect to the broker: %v", err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	r := &Raw{conn: conn}
	r.write([]byte("AMQP\x00\x00\x09\x01"))
	r.expect(10, 10) // start
	sasl := "\x00" + uri.Username + "\x00" + uri.Password
	r.call(0, 10, 11, 10, 30, table(nil), Short("PLAIN"), Long(sasl), Short("en_US"))
	r.method(0, 10, 31, []byte{0, 16, 0, 2, 0, 0, 0, 0}) // tune-ok: 16 channels, frames of 131072, no heartbeat
	r.call(0, 10, 40, 10, 41, Short(uri.Vhost), Short(""), []byte{0})
	r.call(1, 20, 10, 20, 11, Short(""))
	r.call(1, 85, 10, 85, 11, []byte{0})
	if r.err != nil {
		t.Fatalf("open a raw connection: %v", r.err)
	}
	return r
}

// Publish sends one message whose header table is headers, the entries' bytes without the table's own length. It
// returns nil when the broker confirmed the message and what the broker said otherwise.
func (r *Raw) Publish(exchange, key string, headers, body []byte) error {
	return r.PublishWith(exchange, key, append([]byte{0x20, 0}, table(headers)...), body) // only the header table
}

// PublishWith is Publish with all properties: they are two bytes of flags and the values.
func (r *Raw) PublishWith(exchange, key string, properties, body []byte) error {
	if r.err != nil {
		return r.err
	}
	_ = r.conn.SetDeadline(time.Now().Add(30 * time.Second))
	r.method(1, 60, 40, []byte{0, 0}, Short(exchange), Short(key), []byte{0})
	head := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, uint64(len(body)))
	r.write(Frame(frameHeader, 1, head, properties))
	if len(body) > 0 {
		r.write(Frame(frameBody, 1, body))
	}
	r.expect(60, 80) // ack
	return r.err
}

// Close closes the connection without saying goodbye.
func (r *Raw) Close() { _ = r.conn.Close() }

func (r *Raw) call(channel uint16, class, method, wantClass, wantMethod uint16, args ...[]byte) {
	r.method(channel, class, method, args...)
	r.expect(wantClass, wantMethod)
}

func (r *Raw) method(channel, class, method uint16, args ...[]byte) {
	r.write(Frame(frameMethod, channel, Method(class, method, args...)))
}

// Frame encodes a frame of AMQP 0-9-1 with this payload.
func Frame(kind byte, channel uint16, payload ...[]byte) []byte {
	p := bytes.Join(payload, nil)
	f := binary.BigEndian.AppendUint16([]byte{kind}, channel)
	f = binary.BigEndian.AppendUint32(f, uint32(len(p)))
	return append(append(f, p...), frameEnd)
}

// readFrame reads a frame.
func readFrame(from io.Reader) (kind byte, channel uint16, payload []byte, err error) {
	var head [7]byte
	if _, err = io.ReadFull(from, head[:]); err != nil {
		return 0, 0, nil, err
	}
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+1)
	_, err = io.ReadFull(from, payload)
	return head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1], err
}

// Method encodes a method, the payload of a frame, with its encoded arguments.
func Method(class, id uint16, args ...[]byte) []byte {
	m := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, class), id)
	return append(m, bytes.Join(args, nil)...)
}

func (r *Raw) write(b []byte) {
	if r.err == nil {
		_, r.err = r.conn.Write(b)
	}
}

// expect reads frames until the wanted method; a close of channel or connection is an error that holds its text.
func (r *Raw) expect(class, method uint16) {
	for r.err == nil {
		kind, _, payload, err := readFrame(r.conn)
		if r.err = err; err != nil || kind != frameMethod {
			continue
		}
		switch c, m := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]); {
		case c == class && m == method:
			return
		case c == 60 && m == 120: // nack
			r.err = fmt.Errorf("nacked")
		case c == 10 && m == 50, c == 20 && m == 40: // close
			r.err = fmt.Errorf("closed: %d %s", binary.BigEndian.Uint16(payload[4:]), payload[7:7+int(payload[6])])
		}
	}
}

func table(entries []byte) []byte { return Long(string(entries)) }
