package amqpwire

import (
	"bytes"
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

// stream is a random sequence of frames and what the library should see of it.
func stream(r *rand.Rand) (sent, want []byte) {
	noise := func(n int) []byte { return randomBytes(r, n) }
	for range 1 + r.IntN(40) {
		kind, payload := byte(1), noise(r.IntN(300))
		switch r.IntN(9) {
		case 0:
			kind, payload = 3, noise(r.IntN(200_000))
		case 1:
			kind, payload = 8, nil
		case 2:
			kind, payload = 2, header(field("deep", 'A', nested(30+r.IntN(6))...))
		case 3:
			kind, payload = 2, header(field("large", 'S', long(string(noise(100_000+r.IntN(60_000))))...), field("x", 'V'))
		case 4:
			kind, payload = 2, header(many(9000, func(int) []byte { return field("ab", 'V') }))
		case 5:
			kind, payload = 2, noise(r.IntN(40)) // no content header at all
			if len(payload) >= headerFixed {
				copy(payload[4:], make([]byte, 8)) // a large body would end the connection
			}
		case 6:
			kind, payload = 2, header(field("a", 'S', long("b")...))
		}
		sent = append(sent, frame(kind, 1, payload)...)
		if kind == 2 {
			payload, _ = sanitize(bytes.Clone(payload), FrameMax-frameHead-frameTail)
		}
		want = append(want, frame(kind, 1, payload)...)
	}
	return sent, want
}

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

func TestWireFiltersHoweverTheBytesArrive(t *testing.T) {
	t.Parallel()
	for range 8 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 1))
		sent, want := stream(r)
		client := inPieces(sent, func() int { return 1 + rand.N(1+rand.N(100_000)) })
		w := New(client, client, Options{Hidden: func(int) {}})
		var got bytes.Buffer
		for {
			p := make([]byte, 1+r.IntN(1+r.IntN(70_000)))
			n, err := w.Read(p)
			got.Write(p[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || n == 0 {
				t.Fatalf("seed %d: read %d: %v", seed, n, err)
			}
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Fatalf("seed %d: %d bytes instead of %d, or other ones", seed, got.Len(), len(want))
		}
		if !errors.Is(w.Err(), io.EOF) {
			t.Errorf("seed %d: the end of the connection is kept as %v", seed, w.Err())
		}
	}
}

// What is no AMQP at all, an HTTP answer or the header of another protocol version, ends the connection.
func TestWireRefusesForeignBytes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"AMQP\x00\x00\x09\x01", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x02\x00\x01\xff\xff\xff\xffabc"} {
		client := inPieces([]byte(text), whole)
		w := New(client, client, Options{Hidden: func(int) {}})
		if got, err := io.ReadAll(w); !errors.Is(err, errNotAMQP) || !errors.Is(w.Err(), errNotAMQP) || len(got) > 0 {
			t.Errorf("%q became %q, %v", text, got, err)
		}
	}
	client := inPieces([]byte("\x02\x00"), whole) // may still become a frame
	if got, err := io.ReadAll(New(client, client, Options{})); err != nil || len(got) > 0 {
		t.Errorf("became %q, %v", got, err)
	}
}

func TestWireReportsWhatItHid(t *testing.T) {
	t.Parallel()
	client := inPieces(frame(2, 1, header(field("deep", 'A', nested(99)...))), whole)
	hidden := 0
	if _, err := io.ReadAll(New(client, client, Options{Hidden: func(n int) { hidden += n }})); err != nil || hidden != 1 {
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
