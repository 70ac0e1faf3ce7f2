package broker

import (
	"net"
	"sync/atomic"
	"testing"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

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

// benchSubscription is a subscription that has begun, at a peer that sends what the benchmark sets.
func benchSubscription(b *testing.B) (*inbox, *brokertest.Peer) {
	b.Helper()
	end := &muted{}
	p := &brokertest.Peer{Conn: end}
	url := listen(b, func(c net.Conn) {
		end.Conn = c
		p.Serve("PLAIN")
	})
	s := dial(b, options(b, url))
	_, deliveries := subscribe(b, s, "q", 100)
	b.Cleanup(s.Kill) // the peer no longer says goodbye
	end.mute.Store(true)
	return deliveries, p
}

// BenchmarkReceive is everything below the consumer, with the socket.
func BenchmarkReceive(b *testing.B) {
	const batch = 64
	for _, h := range brokertest.BenchHeaders() {
		b.Run(h.Name, func(b *testing.B) {
			deliveries, p := benchSubscription(b)
			one := brokertest.BenchDelivery(deliveries.q.tag, h.Header)
			var whole []byte
			for range batch {
				whole = append(whole, one...)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				if i++; i%batch == 1 {
					must.Do(b, p.Send(whole))
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
