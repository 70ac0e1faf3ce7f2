package amqpwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestPublishedContent: our content header of a message is the library's, byte for byte.
func TestPublishedContent(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]amqp.Publishing{
		"nothing": {},
		"all": {
			ContentType: "a/b", ContentEncoding: "gzip", Headers: amqp.Table{"h": "v"}, Priority: 9, CorrelationId: "c", ReplyTo: "r",
			Expiration: "1", MessageId: "m", Timestamp: time.Unix(1<<40, 0), Type: "t", UserId: "u", AppId: "a", Body: []byte("x"),
		},
		"nested": {Headers: amqp.Table{"t": amqp.Table{"a": []any{nil, amqp.Table{}, []any{}}}}},
	} {
		m.DeliveryMode = amqp.Persistent
		if got, want := appendContent(nil, &m), publishedContent(t, m); !bytes.Equal(got, want) {
			t.Errorf("%s: %x, want %x", name, got, want)
		}
	}
	for _, v := range []any{
		nil, true, false, byte(1), int8(-1), int16(-2), int32(-3), int64(-4), 5, uint16(6), uint32(7), float32(0.1), 0.1, "", "x", []byte{}, []byte{0},
		amqp.Decimal{Scale: 2, Value: -7}, time.Unix(-1, 0),
	} {
		m := amqp.Publishing{DeliveryMode: amqp.Persistent, Headers: amqp.Table{"h": v}}
		if got, want := appendContent(nil, &m), publishedContent(t, m); !bytes.Equal(got, want) {
			t.Errorf("%T: %x, want %x", v, got, want)
		}
	}
}

// publishing is a wire that is established, with a confirming channel, and what it has written.
func publishing(t *testing.T) (w *Wire, c *Confirming, out net.Conn) {
	t.Helper()
	ours, theirs := net.Pipe()
	w = New(ours, ours, Options{})
	t.Cleanup(func() { w.Kill(); _ = theirs.Close() })
	must.Do(t, w.Established(time.Minute, 4096))
	must.Do(t, theirs.SetDeadline(time.Now().Add(30*time.Second)))
	return w, &Confirming{channel: 7}, theirs
}

// nextFrame reads one frame.
func nextFrame(t *testing.T, from io.Reader) (kind byte, channel uint16, payload []byte) {
	t.Helper()
	head := make([]byte, frameHead)
	must.Get(io.ReadFull(from, head))(t)
	payload = make([]byte, binary.BigEndian.Uint32(head[3:])+frameTail)
	must.Get(io.ReadFull(from, payload))(t)
	if payload[len(payload)-1] != frameEnd {
		t.Fatalf("a frame ends with %x", payload[len(payload)-1])
	}
	return head[0], binary.BigEndian.Uint16(head[1:]), payload[:len(payload)-1]
}

// TestPublishedBodies: a body of any size is as many frames as it needs, none larger than negotiated.
func TestPublishedBodies(t *testing.T) {
	t.Parallel()
	w, c, out := publishing(t)
	for _, gather := range []bool{false, true} {
		for _, size := range []int{0, 1, 4088, 4089, 3 * largeBody, 100_000} {
			body := bytes.Repeat([]byte{'b'}, size)
			written := make(chan error, 1)
			go func() {
				err := w.Publish(c, "e", "k", true, &amqp.Publishing{Body: body}, gather)
				written <- errors.Join(err, w.Flush())
			}()
			kind, channel, method := nextFrame(t, out)
			if kind != typeMethod || channel != 7 || !bytes.Equal(method, []byte{0, 60, 0, 40, 0, 0, 1, 'e', 1, 'k', 1}) {
				t.Fatalf("%d %d %x", kind, channel, method)
			}
			if kind, _, header := nextFrame(t, out); kind != typeHeader || binary.BigEndian.Uint64(header[4:]) != uint64(size) {
				t.Fatalf("%d %x", kind, header)
			}
			for left := size; left > 0; {
				kind, channel, piece := nextFrame(t, out)
				if left -= len(piece); kind != typeBody || channel != 7 || len(piece) > 4096-frameHead-frameTail || left < 0 {
					t.Fatalf("%d %d: %d bytes, and %d are left", kind, channel, len(piece), left)
				}
			}
			must.Do(t, <-written)
			if w.Pending() != 0 {
				t.Errorf("%d bytes are kept", w.Pending())
			}
		}
	}
}

// TestPublishWaitsForTheLibrarysFrame: no frame is written into the middle of one that the library writes in pieces.
func TestPublishWaitsForTheLibrarysFrame(t *testing.T) {
	t.Parallel()
	w, c, out := publishing(t)
	library := endFrame(append(beginFrame(nil, typeMethod, 1), make([]byte, 100)...), 0)
	for _, cut := range []int{1, frameHead - 1, frameHead, frameHead + 1, len(library) - 1} {
		arrived := make([]byte, cut)
		first := make(chan error, 1)
		go func() {
			_, err := w.Write(library[:cut])
			first <- err
		}()
		must.Get(io.ReadFull(out, arrived))(t)
		must.Do(t, <-first)
		published := make(chan error, 1)
		go func() { published <- w.Publish(c, "", "k", false, &amqp.Publishing{}, false) }()
		rest := make(chan error, 1)
		go func() {
			_, err := w.Write(library[cut:])
			rest <- err
		}()
		if _, channel, _ := nextFrame(t, io.MultiReader(bytes.NewReader(arrived), out)); channel != 1 {
			t.Fatalf("cut at %d: a frame of channel %d", cut, channel)
		}
		for range 2 {
			if _, channel, _ := nextFrame(t, out); channel != 7 {
				t.Fatalf("cut at %d: a frame of channel %d", cut, channel)
			}
		}
		must.Do(t, errors.Join(<-rest, <-published))
	}
	go func() { _, _ = w.Write(library[:10]) }()
	must.Get(io.ReadFull(out, make([]byte, 10)))(t)
	published := make(chan error, 1)
	go func() { published <- w.Publish(c, "", "k", false, &amqp.Publishing{}, false) }()
	w.Kill()
	if err := <-published; err == nil {
		t.Error("a connection that has ended took a message")
	}
}

// TestNothingOnAClosedChannel: the broker ends the connection over a frame for a channel that it has closed.
func TestNothingOnAClosedChannel(t *testing.T) {
	t.Parallel()
	w, c, _ := publishing(t)
	c.closed.Store(true)
	if err := w.Publish(c, "", "k", false, &amqp.Publishing{}, true); !errors.Is(err, amqp.ErrClosed) || w.Pending() != 0 {
		t.Errorf("%v, and %d bytes are kept", err, w.Pending())
	}
}
