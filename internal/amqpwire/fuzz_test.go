package amqpwire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/budget"
)

// FuzzTable sends what was received out again, as a park does: every table that we read must be one that the client
// library can write, of the size we say it has, and mean the same when it returns.
func FuzzTable(f *testing.F) {
	f.Add(header(field("n", 'd', 0x7f, 0xf8, 0, 0, 0, 0, 0, 1), field("D", 'D', 2, 0, 0, 48, 57)))
	r := rand.New(rand.NewPCG(1, 0))
	for range 30 {
		f.Add(header(randomTable(r)))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		const limit = FrameMax - frameHead - frameTail
		payload, _ = sanitize(bytes.Clone(payload), limit)
		var first, second Delivery
		_, ok := readContent(payload, &first, &texts{})
		if cost, n := tableCost(bytes.Clone(first.table)), len(first.table); cost > 32*n+8<<10 {
			t.Fatalf("a table of %d bytes costs %d decoded", n, cost)
		}
		if first.DecodeHeaders(); !ok || len(first.Headers) == 0 || first.Headers[hiddenKey] != nil {
			return
		}
		size, err := amqpvalue.TableSize(first.Headers)
		if err != nil {
			t.Fatalf("received, and cannot be sent: %v in %v", err, first.Headers)
		}
		written := publishedHeader(t, first.Headers)
		if start, end, ok := headerTable(written); !ok || size != end-start+4 {
			t.Fatalf("%d bytes; the library writes %d: %v", size, end-start+4, first.Headers)
		}
		written, lost := sanitize(written, limit)
		if _, ok := readContent(written, &second, &texts{}); !ok || lost > 0 && len(second.table) == len(first.table) {
			t.Fatalf("lost on the way back: %v", first.Headers)
		}
		if lost > 0 {
			return // without what was there twice the table is shorter, and may cost less
		}
		second.DecodeHeaders()
		if !reflect.DeepEqual(comparable(first.Headers), comparable(second.Headers)) {
			t.Fatalf("sent %v, returned as %v", first.Headers, second.Headers)
		}
	})
}

// FuzzStream reads a connection on which the peer says anything, in pieces of one size and of another: the library must
// see the same bytes, never more than were sent, our consumer the same deliveries, and the connection end for the same
// reason.
func FuzzStream(f *testing.F) {
	f.Add(append(deliverFrame(1, "ours", 1, false, "e", "k"), contentFrame(1, "id", "v", 0)...), uint16(1))
	f.Add(append(returnFrame(2, "e", "k"), contentFrame(2, "id", "v", 0)...), uint16(1))
	f.Add(append(append(returnFrame(2, "e", "k"), contentFrame(2, "id", "v", 3)...), frame(3, 2, []byte("abc"))...), uint16(9))
	f.Add(frame(1, 2, method(60, 80, []byte{0, 0, 0, 0, 0, 0, 0, 9, 1})), uint16(3))
	f.Fuzz(func(t *testing.T, raw []byte, step uint16) {
		passed, taken, err := readStream(raw, len(raw)+1)
		again, takenAgain, errAgain := readStream(raw, int(step)+1)
		if !bytes.Equal(passed, again) || taken != takenAgain || !errors.Is(errAgain, err) {
			t.Fatalf("in one piece: %d bytes, %v\n%.2000s\nby %d: %d bytes, %v\n%.2000s", len(passed), err, taken, int(step)+1, len(again), errAgain, takenAgain)
		}
		if strings.Contains(taken, "after the end") {
			t.Fatal(taken)
		}
		var known ProtocolError
		if len(passed) > len(raw) || err != io.EOF && !errors.As(err, &known) {
			t.Fatalf("%d bytes became %d: %v", len(raw), len(passed), err)
		}
	})
}

// readStream returns what the library reads, what our consumer gets as text, and why it ended.
func readStream(raw []byte, step int) (passed []byte, taken string, end error) {
	memory := budget.New(1 << 20).Account(budget.Deliveries)
	o := Options{Memory: memory, Patience: time.Nanosecond, Hidden: func(int) {}}
	w, q := consuming(o, raw, func() int { return step })
	defer w.Kill() // its end may not be reached
	w.confirms = map[uint16]*Confirming{2: {channel: 2, returned: func(f Fingerprint, why *ReturnedError) {
		taken += fmt.Sprintf("%x %v\n", f, why)
	}}}
	passed, end = io.ReadAll(w)
	if end == nil {
		end = io.EOF
	}
	list, _ := q.Take(nil)
	for _, d := range list {
		d.DecodeHeaders()
		taken += fmt.Sprintf("%d %v %q %q %q %v %x\n", d.DeliveryTag, d.Redelivered, d.Exchange, d.RoutingKey, d.MessageId, d.Headers, d.Body)
		d.Free()
	}
	if held := memory.Held(); held != 0 {
		taken += fmt.Sprintf("%d bytes are held after the end", held) // which no two runs have in common
	}
	return passed, taken, end
}
