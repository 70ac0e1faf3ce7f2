package amqpwire

import (
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"testing"
	"time"

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
