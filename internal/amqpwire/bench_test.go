package amqpwire

import (
	"net"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

var benchHeaders, benchDelivery = brokertest.BenchHeaders, brokertest.BenchDelivery

func BenchmarkSanitize(b *testing.B) {
	for _, h := range benchHeaders() {
		b.Run(h.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				sanitize(h.Header, FrameMax)
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
	w, q := New(c, c, Options{Hidden: func(int) {}}), NewDeliveries(0)
	w.Consume("sidecar-1-1", q)
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
		b.Run(h.Name, func(b *testing.B) {
			next := received(b, h.Header)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}

// Without headers nothing is allocated. A table is one copy of its bytes, the map, and what an interface needs to hold
// a text; two more are for the race detector, under which a pool forgets at random: a delivery without headers then
// allocates 0.7 times on average, and only the mean of many is surely below 1. Not parallel: the allocations of all goroutines count.
func TestIntakeAllocatesLittle(t *testing.T) {
	for _, h := range benchHeaders() {
		next := received(t, h.Header)
		next()
		if n := testing.AllocsPerRun(5000, next); n > h.Allocs {
			t.Errorf("%s: %v allocations, more than %v", h.Name, n, h.Allocs)
		}
	}
}
