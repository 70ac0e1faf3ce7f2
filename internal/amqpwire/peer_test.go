package amqpwire

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

var (
	frame, method, short, long = brokertest.Frame, brokertest.Method, brokertest.Short, brokertest.Long
	field, container, nested   = brokertest.Field, brokertest.Container, brokertest.Nested
	header, many               = brokertest.Header, brokertest.Many
	deliverFrame, contentFrame = brokertest.DeliverFrame, brokertest.ContentFrame
	randomBytes, randomTable   = brokertest.RandomBytes, brokertest.RandomTable
)

// reader is the client library itself as the judge of what it can read: a consumer at the end of a connection on which
// the test sends what it likes.
type reader struct {
	peer       *brokertest.Peer
	deliveries <-chan amqp.Delivery
	tag        string
}

// library opens a connection of the client library to p. It ends with the test.
func library(t testing.TB, p *brokertest.Peer, wrap func(net.Conn) io.ReadWriteCloser) (*brokertest.Peer, *amqp.Connection) {
	t.Helper()
	client, server := net.Pipe()
	p.Conn = server
	var wg sync.WaitGroup
	wg.Go(func() { p.Serve("PLAIN") })
	t.Cleanup(func() {
		_ = client.Close()
		_ = server.Close()
		wg.Wait()
	})
	return p, must.Get(amqp.Open(wrap(client), amqp.Config{
		SASL: []amqp.Authentication{&amqp.PlainAuth{}}, FrameSize: FrameMax, Properties: amqp.Table{},
	}))(t)
}

func newReader(t testing.TB, wrap func(net.Conn) io.ReadWriteCloser) *reader {
	t.Helper()
	r := &reader{tag: "judge"}
	var c *amqp.Connection
	r.peer, c = library(t, &brokertest.Peer{}, wrap)
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
		_ = r.peer.Send(
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
	p, c := library(t, &brokertest.Peer{Headers: make(chan []byte, 1)}, plain)
	ch, err := c.Channel()
	if err == nil {
		err = ch.Publish("", "k", false, false, amqp.Publishing{Headers: h})
	}
	if err != nil {
		t.Fatal(err)
	}
	return <-p.Headers
}
