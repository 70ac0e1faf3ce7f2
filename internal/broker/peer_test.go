package broker

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// peer is the other end of a connection for what a real broker does not do on demand: it answers the handshake and
// opens channels, and then sends the frames a test gives it. It knows nothing of queues and messages.
type peer struct {
	conn net.Conn
	mu   sync.Mutex // one frame at a time

	mechanism string      // what the client chose; set before the handshake ends
	headers   chan []byte // content headers received; may be nil
	consuming chan string // tags of consumers; may be nil
}

var frame, method = brokertest.Frame, brokertest.Method

func short(s string) []byte { return append([]byte{byte(len(s))}, s...) }
func long(s string) []byte  { return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...) }

func (p *peer) send(frames ...[]byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range frames {
		if _, err := p.conn.Write(f); err != nil {
			return err
		}
	}
	return nil
}

// serve speaks until the connection ends. mechanisms is what it offers.
func (p *peer) serve(mechanisms string) {
	defer func() { _ = p.conn.Close() }()
	if _, err := io.ReadFull(p.conn, make([]byte, 8)); err != nil {
		return
	}
	_ = p.send(frame(1, 0, method(10, 10, []byte{0, 9}, long(""), long(mechanisms), long("en_US"))))
	for {
		var head [frameHead]byte
		if _, err := io.ReadFull(p.conn, head[:]); err != nil {
			return
		}
		payload := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(p.conn, payload); err != nil {
			return
		}
		switch {
		case head[0] == 1:
			p.answer(binary.BigEndian.Uint16(head[1:]), payload)
		case head[0] == 2 && p.headers != nil:
			p.headers <- payload[:len(payload)-1]
		}
	}
}

func (p *peer) answer(channel uint16, payload []byte) {
	reply := func(class, id uint16, args ...[]byte) { _ = p.send(frame(1, channel, method(class, id, args...))) }
	switch class, id := binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:]); {
	case class == 10 && id == 11: // start-ok: properties, mechanism, …
		rest := payload[8+binary.BigEndian.Uint32(payload[4:]):]
		p.mechanism = string(rest[1 : 1+rest[0]])
		reply(10, 30, []byte{0, 16, 0, 2, 0, 0, 0, 0}) // tune
	case class == 10 && id == 40:
		reply(10, 41, short("")) // open-ok
	case class == 10 && id == 50:
		reply(10, 51) // close-ok
	case class == 20 && id == 10:
		reply(20, 11, long("")) // channel.open-ok
	case class == 60 && id == 10:
		reply(60, 11) // qos-ok
	case class == 60 && id == 20:
		tag := payload[6+1+payload[6]:]
		reply(60, 21, tag[:1+tag[0]]) // consume-ok
		if p.consuming != nil {
			p.consuming <- string(tag[1 : 1+tag[0]])
		}
	}
}

// reader is the client library itself as the judge of what it can read: a consumer at the end of a connection on which
// the test sends what it likes.
type reader struct {
	peer       *peer
	deliveries <-chan amqp.Delivery
	tag        string
}

// library opens a connection of the client library to p. It ends with the test.
func library(t testing.TB, p *peer, wrap func(net.Conn) io.ReadWriteCloser) (*peer, *amqp.Connection) {
	t.Helper()
	client, server := net.Pipe()
	p.conn = server
	var wg sync.WaitGroup
	wg.Go(func() { p.serve("PLAIN") })
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		wg.Wait()
	})
	return p, must.Get(amqp.Open(wrap(client), amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{}}, FrameSize: frameMax, Properties: amqp.Table{},
	}))(t)
}

func newReader(t testing.TB, wrap func(net.Conn) io.ReadWriteCloser) *reader {
	t.Helper()
	r := &reader{tag: "judge"}
	var c *amqp.Connection
	r.peer, c = library(t, &peer{}, wrap)
	ch, err := c.Channel()
	if err == nil {
		r.deliveries, err = ch.Consume("q", r.tag, false, false, false, false, nil)
	}
	if err != nil {
		t.Fatalf("consume: %v", err)
	}
	return r
}

// deliver sends one message without a body; ok is false when it cost the library the connection.
func (r *reader) deliver(t testing.TB, header []byte) (d amqp.Delivery, ok bool) {
	t.Helper()
	binary.BigEndian.PutUint64(header[4:], 0) // no body
	go func() {
		_ = r.peer.send(
			frame(1, 1, method(60, 60, short(r.tag), make([]byte, 9), short("x"), short("k"))),
			frame(2, 1, header))
	}()
	select {
	case d, ok = <-r.deliveries:
		return d, ok
	case <-time.After(30 * time.Second):
		t.Fatalf("neither delivered nor refused: %x", header)
		return d, false
	}
}

// publishedHeader is the content header that the library writes for a message with these headers.
func publishedHeader(t testing.TB, h amqp.Table) []byte {
	t.Helper()
	p, c := library(t, &peer{headers: make(chan []byte, 1)}, plain)
	ch, err := c.Channel()
	if err == nil {
		err = ch.Publish("", "k", false, false, amqp.Publishing{Headers: h})
	}
	if err != nil {
		t.Fatal(err)
	}
	return <-p.headers
}
