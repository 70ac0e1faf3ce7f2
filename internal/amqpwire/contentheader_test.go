package amqpwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/budget"
)

// randomContent is a content header with any properties; its table is well-formed half of the time.
func randomContent(r *rand.Rand) []byte {
	flags := uint16(r.Uint32()) &^ 3
	b := binary.BigEndian.AppendUint16(make([]byte, headerFixed-2), flags)
	b[1] = 60
	words := []string{"", "application/json", "gzip", "a", "b", "1000", "a longer text that is not the same as the others"}
	for flag := uint16(flagContentType); flag >= flagReserved; flag >>= 1 {
		switch {
		case flags&flag == 0:
		case flag == flagHeaders:
			b = append(b, long(string(randomTable(r)))...)
		case flag == flagDeliveryMode, flag == flagPriority:
			b = append(b, byte(r.Uint32()))
		case flag == flagTimestamp:
			b = binary.BigEndian.AppendUint64(b, r.Uint64()>>r.IntN(60))
		default:
			b = append(b, short(words[r.IntN(len(words))])...)
		}
	}
	switch r.IntN(10) {
	case 0:
		b = b[:r.IntN(len(b))] // cut short
	case 1:
		b = append(b, randomBytes(r, 5)...) // padding
	}
	return b
}

// same compares what the library read with what we read. A float that is not a number equals itself here.
func same(library, own *amqp.Delivery) bool {
	a, b := *library, *own
	if !a.Timestamp.Equal(b.Timestamp) || len(a.Body) != len(b.Body) {
		return false
	}
	a.Acknowledger, a.ConsumerTag, a.Timestamp, a.Body = nil, "", time.Time{}, nil
	b.Acknowledger, b.ConsumerTag, b.Timestamp, b.Body = nil, "", time.Time{}, nil
	a.Headers, _ = comparable(a.Headers).(amqp.Table)
	b.Headers, _ = comparable(b.Headers).(amqp.Table)
	return reflect.DeepEqual(a, b)
}

// comparable replaces floats by their bits and times by their seconds, and keeps nil besides empty.
func comparable(v any) any {
	switch v := v.(type) {
	case amqp.Table:
		if v == nil {
			return v
		}
		t := make(amqp.Table, len(v))
		for k, e := range v {
			t[k] = comparable(e)
		}
		return t
	case []any:
		if v == nil {
			return v
		}
		a := make([]any, len(v))
		for i, e := range v {
			a[i] = comparable(e)
		}
		return a
	case float64:
		return [2]uint64{64, math.Float64bits(v)}
	case float32:
		return [2]uint64{32, uint64(math.Float32bits(v))}
	case time.Time:
		return [1]int64{v.Unix()}
	}
	return v
}

// judged sanitizes one content header, as on the wire. The library must be able to read one that was well-formed, and
// reads whatever it reads as we do.
func judged(t testing.TB, judge **reader, payload []byte, last *texts) {
	t.Helper()
	const limit = FrameMax - frameHead - frameTail
	before, whole := bytes.Clone(payload), wellFormed(payload)
	payload, _ = sanitize(payload, limit)
	if len(before) <= limit && len(payload) != len(before) {
		t.Fatalf("%d bytes became %d", len(before), len(payload))
	}
	if again, lost := sanitize(bytes.Clone(payload), limit); whole && !bytes.Equal(again, payload) {
		t.Fatalf("sanitizing twice is different; lost %d", lost)
	}
	for _, limit := range []int{len(before) / 2, 40} {
		if short, _ := sanitize(bytes.Clone(before), limit); len(short) > len(before) {
			t.Fatalf("%d bytes became %d", len(before), len(short))
		}
	}
	if len(payload) < headerFixed || len(payload) > limit {
		return
	}
	binary.BigEndian.PutUint64(payload[4:], 0) // no body: that is not what is compared
	received := Delivery{Delivery: amqp.Delivery{Exchange: "x", RoutingKey: "k"}}
	_, readable := readContent(bytes.Clone(payload), &received, last)
	received.DecodeHeaders()
	own := received.Delivery
	_, hidden := own.Headers[hiddenKey]
	hidden = hidden && !wellFormed(payload)
	library, ok := (*judge).deliver(t, bytes.Clone(payload))
	if !ok {
		*judge = newReader(t, plain)
	}
	if whole && !ok {
		t.Fatalf("the library cannot read %.2000x, made from %.2000x", payload, before)
	}
	if hidden {
		return // the library refuses most of these and guesses at others; no broker lets them through
	}
	if ok != readable {
		t.Fatalf("the library reads %.2000x: %v; we: %v", payload, ok, readable)
	}
	if ok && !same(&library, &own) {
		t.Fatalf("the library reads %.2000x as\n%.3000v\nand we as\n%.3000v", payload, fmt.Sprintf("%+v", library), fmt.Sprintf("%+v", own))
	}
}

func TestContentReadsAsInTheLibrary(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 3))
	judge := newReader(t, plain)
	var last texts
	for range 400 {
		judged(t, &judge, randomContent(r), &last)
	}
}

func FuzzContent(f *testing.F) {
	f.Add(header(field("deep", 'A', nested(40)...), field("L", 'L', 0, 0, 0, 0, 0, 0, 0, 9)))
	f.Add(header(many(9000, func(int) []byte { return field("", 'V') })))
	f.Add(header(field("n", 'd', 0x7f, 0xf8, 0, 0, 0, 0, 0, 1), field("D", 'D', 2, 0, 0, 48, 57)))
	f.Add(header(field("F", 'F', container(field("s", 'S', 0, 0, 1, 0))...)))
	f.Add(header(field("x-death", 'A', container(append([]byte{'F'}, container(field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1))...))...)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		judge := newReader(t, plain)
		judged(t, &judge, payload, &texts{})
	})
}

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
	w.confirms = map[uint16]*Confirming{2: {channel: 2, events: Events{
		Returned: func(f Fingerprint, why *ReturnedError) { taken += fmt.Sprintf("%x %v\n", f, why) },
		Confirmed: func(tag uint64, multiple, ack bool) bool {
			taken += fmt.Sprintln(tag, multiple, ack)
			return tag < 1<<60
		},
		Closed: func(code int, text string) { taken += fmt.Sprintf("%d %q\n", code, text) },
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
