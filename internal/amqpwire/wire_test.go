package amqpwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/budget"
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
	return publishedContent(t, amqp.Publishing{Headers: h})
}

// publishedContent is the content header that the library writes for a message.
func publishedContent(t testing.TB, m amqp.Publishing) []byte {
	t.Helper()
	p, c := library(t, &brokertest.Peer{Headers: make(chan []byte, 1)}, plain)
	ch, err := c.Channel()
	if err == nil {
		err = ch.Publish("", "k", false, false, m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return <-p.Headers
}

// identities receives one delivery of each stream, with limit bytes of memory, in pieces of any size.
func identities(t *testing.T, limit int64, spool *Spool, streams ...[]byte) (all []uint64) {
	t.Helper()
	for _, stream := range streams {
		w, q := consuming(Options{Memory: budget.New(limit).Account(budget.Deliveries), Spool: spool, Hidden: func(int) {}}, stream, anySize)
		must.Get(io.ReadAll(w))(t)
		got, _ := q.Take(nil)
		if len(got) != 1 || got[0].Identity == 0 {
			t.Fatalf("%d deliveries", len(got))
		}
		all = append(all, got[0].Identity)
		got[0].Free()
	}
	return all
}

// tabled is a delivery with this header table and a message id.
func tabled(exchange, key string, entries ...[]byte) []byte {
	h := binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 0)
	h = append(binary.BigEndian.AppendUint16(h, flagHeaders|flagMessageID), long(string(slices.Concat(entries...)))...)
	return append(deliverFrame(1, "ours", 1, false, exchange, key), frame(2, 1, append(h, short("id")...))...)
}

// TestIdentityIsOfTheWholeBody: wherever the body is kept, and also where it is not.
func TestIdentityIsOfTheWholeBody(t *testing.T) {
	t.Parallel()
	body := bytes.Repeat([]byte("0123456789"), 300_000)
	other := append(bytes.Clone(body[:len(body)-1]), 'x')
	stream := [][]byte{wholeDelivery(1, body), wholeDelivery(2, other), wholeDelivery(3, body[1:])}
	inMemory := identities(t, 64<<20, nil, stream...)
	inFile := identities(t, 1<<20, NewSpool(t.TempDir(), 1<<30), stream...)
	missing := identities(t, 1<<20, nil, stream...)
	if !slices.Equal(inMemory, inFile) || !slices.Equal(inMemory, missing) {
		t.Errorf("in memory %x, in a file %x, missing %x", inMemory, inFile, missing)
	}
	if slices.Sort(inMemory); len(slices.Compact(inMemory)) != len(stream) {
		t.Error("bodies that differ are one message")
	}
}

// TestIdentityOfHeaders: messages that differ in headers or routing differ, and the counts of the broker are left out.
func TestIdentityOfHeaders(t *testing.T) {
	t.Parallel()
	text := func(name, value string) []byte { return field(name, 'S', long(value)...) }
	count := func(name string, n byte) []byte { return field(name, 'l', 0, 0, 0, 0, 0, 0, 0, n) }
	death := func(n byte) []byte {
		table := long(string(slices.Concat(count("count", n), text("queue", "wait"), text("reason", "expired"))))
		return field("x-death", 'A', long(string(append([]byte("F"), table...)))...)
	}
	deep, deeper := field("deep", 'A', nested(40, 'V')...), field("deep", 'A', nested(40, 't', 1)...)
	unlike := [][]byte{
		tabled("", "k"), tabled("k", ""), tabled("", "k", text("a", "b")), tabled("", "k", text("ab", "")),
		tabled("", "k", text("a", "b"), text("c", "d")), tabled("", "k", text("a", "d"), text("c", "b")),
		tabled("", "k", text("X-Delivery-Count", "1")), tabled("", "k", death(1)), tabled("", "k", death(2)),
		tabled("", "k", deep), tabled("", "k", deeper), // readers see neither
		tabled("", "k", []byte{200}), tabled("", "k", []byte{201}), tabled("", "k", []byte{1, 'a', 'S', 0, 0}),
		tabled("", "k", []byte{1, 'a', 'S', 0, 0, 0, 9}), tabled("", "k", []byte{1, 'a', '?'}),
	}
	all := identities(t, 1<<20, nil, unlike...)
	for i, id := range all {
		if at := slices.Index(all, id); at != i {
			t.Errorf("messages %d and %d are one", at, i)
		}
	}
	for _, counts := range [][]byte{count("x-delivery-count", 1), count("x-acquired-count", 2)} {
		again := identities(t, 1<<20, nil, tabled("", "k", counts), tabled("", "k", text("c", "d"), counts, text("a", "b")))
		if again[0] != all[0] || again[1] != all[4] {
			t.Errorf("%q makes another message of the same", counts)
		}
	}
	none := append(deliverFrame(1, "ours", 1, false, "", "k"), frame(2, 1, append(binary.BigEndian.AppendUint16(
		binary.BigEndian.AppendUint64([]byte{0, 60, 0, 0}, 0), flagMessageID), short("id")...))...)
	if identities(t, 1<<20, nil, none)[0] != all[0] {
		t.Error("a message without headers is another one when the broker adds a count")
	}
}
