package broker

import (
	"encoding/binary"
	"fmt"
	"net"
	"sync/atomic"
	"testing"

	"sidecar/internal/testkit/must"
)

// named is a content header by what its table holds.
type named struct {
	name   string
	header []byte
	allocs float64 // at most, to read it
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
		{"headers=0", none, 0}, {"headers=8", plain(8), 13}, {"headers=64", plain(64), 71},
		{"deaths=2", header(field("x-death", 'A', container(death, death)...)), 25},
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

// received takes one delivery after the other off the stream, from memory.
func received(tb testing.TB, header []byte) (next func()) {
	c := &loop{bytes: benchDelivery("sidecar-1-1", header)}
	w, q := newWire(c, c, &Options{}, func(int) {}), NewDeliveries()
	w.intake.add("sidecar-1-1", q)
	var batch, rest []*Delivery
	return func() {
		for len(rest) == 0 {
			must.Do(tb, w.fill())
			if w.ready() || w.broken != nil {
				tb.Fatalf("not all of it is ours: %v", w.broken)
			}
			batch, _ = q.Take(batch)
			rest = batch
		}
		if len(rest[0].Body) != 1024 {
			tb.Fatalf("received %+v", rest[0])
		}
		rest[0].DecodeHeaders()
		rest[0].Free()
		rest = rest[1:]
	}
}

// BenchmarkIntake is one delivery from the bytes of the stream to the consumer's hands.
func BenchmarkIntake(b *testing.B) {
	for _, h := range benchHeaders() {
		b.Run(h.name, func(b *testing.B) {
			next := received(b, h.header)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}

// Without headers nothing is allocated. A table is one copy of its bytes, the map, and what an interface needs to hold
// a text; two more are for the race detector, under which a pool forgets at random. Not parallel: the allocations of all
// goroutines count.
func TestIntakeAllocatesLittle(t *testing.T) {
	for _, h := range benchHeaders() {
		next := received(t, h.header)
		next()
		if n := testing.AllocsPerRun(200, next); n > h.allocs {
			t.Errorf("%s: %v allocations, more than %v", h.name, n, h.allocs)
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
func benchSubscription(b *testing.B) (*Subscription, *inbox, *peer) {
	b.Helper()
	end := &muted{}
	p := &peer{conn: end}
	url := listen(b, func(c net.Conn) {
		end.Conn = c
		p.serve("PLAIN")
	})
	s := dial(b, options(b, url))
	sub, deliveries := subscribe(b, s, "q", 100)
	b.Cleanup(s.Kill) // the peer no longer says goodbye
	end.mute.Store(true)
	return sub, deliveries, p
}

// BenchmarkReceive is everything below the consumer, with the socket.
func BenchmarkReceive(b *testing.B) {
	const batch = 64
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
					must.Do(b, p.send(whole))
				}
				d := next(b, deliveries)
				if len(d.Body) != 1024 {
					b.Fatalf("received %+v", d)
				}
				d.Free()
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
		must.Do(b, sub.Ack(tag, true))
	}
}
