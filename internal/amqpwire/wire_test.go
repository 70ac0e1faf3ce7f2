package amqpwire

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// inPieces is a connection on which sent arrives in pieces of these sizes, and then its end.
func inPieces(sent []byte, size func() int) net.Conn {
	client, server := net.Pipe()
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), size())
			_, _ = server.Write(rest[:n])
			rest = rest[n:]
		}
		_ = server.Close()
	}()
	return client
}

func whole() int { return math.MaxInt }

// anySize is that of pieces that end anywhere.
func anySize() int { return 1 + rand.N(1+rand.N(100_000)) }

// consuming reads a stream that arrives in pieces of these sizes, with a consumer of ours.
func consuming(o Options, stream []byte, size func() int) (*Wire, *Deliveries) {
	client := inPieces(stream, size)
	w, q := New(client, client, o), NewDeliveries(0)
	w.Consume("ours", q)
	return w, q
}

// What is no AMQP at all, an HTTP answer or the header of another protocol version, ends the connection.
func TestWireRefusesForeignBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"AMQP\x00\x00\x09\x01", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x02\x00\x01\xff\xff\xff\xffabc"} {
		w, _ := consuming(Options{Hidden: func(int) {}}, []byte(text), whole)
		if got, err := io.ReadAll(w); !errors.Is(err, errNotAMQP) || !errors.Is(w.Err(), errNotAMQP) || len(got) > 0 {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	w, _ := consuming(Options{}, []byte("\x02\x00"), whole) // may still become a frame
	if got, err := io.ReadAll(w); err != nil || len(got) > 0 {
		t.Errorf("became %q, %v", got, err)
	}
}

func TestWireReportsWhatItHid(t *testing.T) {
	t.Parallel()
	hidden := 0
	w, _ := consuming(Options{Hidden: func(n int) { hidden += n }}, frame(2, 1, header(field("deep", 'A', nested(99)...))), whole)
	if _, err := io.ReadAll(w); err != nil || hidden != 1 {
		t.Errorf("hidden %d, %v", hidden, err)
	}
}

func TestWireEndsASilentConnection(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	w := New(client, client, Options{Hidden: func(int) {}})
	must.Do(t, w.Established(20*time.Millisecond, 4096))
	if _, err := w.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func TestWireEndsAConnectionThatTakesNothing(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe()
	defer func() { _ = server.Close() }()
	w := New(client, client, Options{Hidden: func(int) {}})
	w.stuck = 20 * time.Millisecond
	must.Do(t, w.Established(time.Hour, 4096))
	if _, err := w.Write([]byte("this is not read")); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(w.Err(), err) {
		t.Errorf("got %v, kept %v", err, w.Err())
	}
}

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
