package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// named is a content header by what its table holds.
type named struct {
	name   string
	header []byte
}

func benchHeaders() []named {
	death := append([]byte{'F'}, container(
		field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1), field("reason", 'S', long("rejected")...),
		field("queue", 'S', long("wms.queue.wms-cincout")...), field("time", 'T', 0, 0, 0, 0, 0, 0, 0, 1),
		field("exchange", 'S', long("wms.main-exchange")...),
		field("routing-keys", 'A', container(append([]byte{'S'}, long("order.created")...))...))...)
	plain := func(n int) []byte {
		return header(many(n, func(i int) []byte {
			return field(fmt.Sprintf("x-tenant-%02d", i), 'S', long(fmt.Sprintf("value-%d", i))...)
		}))
	}
	none := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0x90, 0)
	none = append(append(none, short("text/plain")...), 2)
	return []named{
		{"headers=0", none}, {"headers=8", plain(8)}, {"headers=64", plain(64)},
		{"deaths=2", header(field("x-death", 'A', container(death, death)...))},
	}
}

// benchDelivery is one message of 1 KiB in frames, to the consumer tag.
func benchDelivery(tag string, header []byte) []byte {
	const size = 1024
	binary.BigEndian.PutUint64(header[4:], size)
	d := frame(1, 1, method(60, 60, short(tag), make([]byte, 9), short("wms.main-exchange"), short("order.created")))
	d = append(d, frame(2, 1, header)...)
	return append(d, frame(3, 1, make([]byte, size))...)
}

func BenchmarkDefuse(b *testing.B) {
	for _, h := range benchHeaders() {
		b.Run(h.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				defuse(h.header, frameMax)
			}
		})
	}
}

// loop is a connection on which the same bytes arrive for ever.
type loop struct {
	net.Conn
	bytes []byte
	at    int
}

func (l *loop) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], l.bytes[l.at:])
		n, l.at = n+c, (l.at+c)%len(l.bytes)
	}
	return n, nil
}

// filtered reads one delivery after the other through the wire, from memory.
func filtered(tb testing.TB, header []byte) (next func()) {
	d := benchDelivery("sidecar-1-1", header)
	c := &loop{bytes: d}
	w, p := newWire(c, c, func(int) {}), make([]byte, 4096) // as the library reads
	return func() {
		if _, err := io.ReadFull(w, p[:len(d)]); err != nil {
			tb.Fatal(err)
		}
	}
}

// BenchmarkWire is one delivery on its way to the library: from memory, and from a socket with and without the wire.
func BenchmarkWire(b *testing.B) {
	for _, h := range benchHeaders() {
		b.Run(h.name, func(b *testing.B) {
			next := filtered(b, h.header)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
	b.Run("socket", func(b *testing.B) {
		benchSocket(b, func(c net.Conn) io.Reader { return newWire(c, c, func(int) {}) })
	})
	b.Run("socket-plain", func(b *testing.B) { benchSocket(b, func(c net.Conn) io.Reader { return c }) })
}

func TestWireAllocatesNothing(t *testing.T) {
	for _, h := range benchHeaders() {
		next := filtered(t, h.header)
		if n := testing.AllocsPerRun(1000, next); n != 0 {
			t.Errorf("%s: %v allocations", h.name, n)
		}
	}
}

func benchSocket(b *testing.B, open func(net.Conn) io.Reader) {
	one := benchDelivery("sidecar-1-1", benchHeaders()[1].header)
	var deliveries []byte
	for range 64 {
		deliveries = append(deliveries, one...)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		for err == nil {
			_, err = c.Write(deliveries)
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	r, p := open(c), make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := io.ReadFull(r, p[:len(one)]); err != nil {
			b.Fatal(err)
		}
	}
}

// muted is the broker's end of a connection. When mute is set, what the client sends is read and forgotten, so that
// only the client's memory is counted.
type muted struct {
	net.Conn
	mute atomic.Bool
}

func (m *muted) Read(p []byte) (int, error) {
	var waste [4096]byte
	for m.mute.Load() {
		if _, err := m.Conn.Read(waste[:]); err != nil {
			return 0, err
		}
	}
	return m.Conn.Read(p)
}

// benchSubscription is a subscription that has begun, at a peer that sends what it is told to.
func benchSubscription(b *testing.B) (*Subscription, <-chan amqp.Delivery, *peer) {
	b.Helper()
	end := &muted{}
	p := &peer{conn: end}
	url := listen(b, func(c net.Conn) {
		end.Conn = c
		p.serve("PLAIN")
	})
	s := dial(b, options(url))
	sub, deliveries := subscribe(b, s, "q", 100)
	b.Cleanup(s.Kill) // the peer no longer says goodbye
	end.mute.Store(true)
	return sub, deliveries, p
}

// BenchmarkReceive is everything below the consumer: socket, wire, and the client library up to its channel.
func BenchmarkReceive(b *testing.B) {
	const batch = 64 // the library buffers without a bound
	for _, h := range benchHeaders() {
		b.Run(h.name, func(b *testing.B) {
			sub, deliveries, p := benchSubscription(b)
			one := benchDelivery(sub.tag, h.header)
			var whole []byte
			for range batch {
				whole = append(whole, one...)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if i++; i%batch == 1 {
					if err := p.send(whole); err != nil {
						b.Fatal(err)
					}
				}
				if d, ok := <-deliveries; !ok || len(d.Body) != 1024 {
					b.Fatalf("received %+v", d)
				}
			}
		})
	}
}

// BenchmarkAck is one frame to the broker.
func BenchmarkAck(b *testing.B) {
	sub, _, _ := benchSubscription(b)
	tag := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		tag++
		if err := sub.Ack(tag, true); err != nil {
			b.Fatal(err)
		}
	}
}
