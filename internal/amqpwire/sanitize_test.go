package amqpwire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

const noLimit = 1 << 20

func plain(c net.Conn) io.ReadWriteCloser { return c }

func TestSanitizeMakesHostileTablesReadable(t *testing.T) {
	t.Parallel()
	good := field("good", 'I', 0, 0, 0, 7)
	tests := map[string]struct {
		entries []byte
		lost    int
		want    amqp.Table // besides good; nil values only need to be there
	}{
		"depth 32 stays":      {field("deep", 'A', nested(32)...), 0, amqp.Table{"deep": []any{}}},
		"depth 33 is opaque":  {field("deep", 'A', nested(33)...), 1, amqp.Table{"deep": []byte{}}},
		"depth 10000":         {field("deep", 'A', nested(10000)...), 1, amqp.Table{"deep": []byte{}}},
		"table in arrays":     {field("deep", 'A', nested(32, append([]byte{'F'}, container()...)...)...), 1, amqp.Table{"deep": []byte{}}},
		"8192 elements stay":  {field("wide", 'A', container(bytes.Repeat([]byte{'V'}, 8192))...), 0, amqp.Table{"wide": []any{}}},
		"8193 elements":       {field("wide", 'A', container(bytes.Repeat([]byte{'V'}, 8193))...), 1, amqp.Table{"wide": []byte{}}},
		"8193 inner entries":  {field("wide", 'F', container(many(8193, func(i int) []byte { return field(fmt.Sprint(i), 'V') }))...), 1, amqp.Table{"wide": []byte{}}},
		"unsigned long":       {field("L", 'L', 0, 0, 0, 0, 0, 0, 0, 9), 0, amqp.Table{"L": int64(9)}},
		"unsigned long below": {field("A", 'A', nested(3, 'L', 0, 0, 0, 0, 0, 0, 0, 9)...), 0, amqp.Table{"A": []any{}}},
		"unknown type below":  {field("A", 'A', nested(3, '?', 0)...), 1, amqp.Table{"A": []byte{}}},
		"too long below":      {field("F", 'F', container(field("s", 'S', 0, 0, 1, 0))...), 1, amqp.Table{"F": []byte{}}},
		"two bad ones":        {append(field("a", 'A', nested(40)...), field("b", 'A', nested(40)...)...), 2, amqp.Table{"a": []byte{}, "b": []byte{}}},
		"no value at all":     {field("v", 'V'), 0, amqp.Table{"v": nil}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := header(tt.entries, good)
			size := len(h)
			out, lost := sanitize(h, noLimit)
			if len(out) != size || lost != tt.lost {
				t.Fatalf("size %d of %d, lost %d, want %d", len(out), size, lost, tt.lost)
			}
			d, ok := newReader(t, plain).deliver(t, out)
			if !ok {
				t.Fatal("the library could not read it")
			}
			if d.Headers["good"] != int32(7) || d.ContentType != "text/plain" || d.DeliveryMode != 2 {
				t.Errorf("what surrounds it changed: %v", d)
			}
			for k, v := range tt.want {
				got, there := d.Headers[k]
				if !there || fmt.Sprintf("%T", got) != fmt.Sprintf("%T", v) {
					t.Errorf("%s is %T, want %T", k, got, v)
				}
			}
		})
	}
}

func TestSanitizeHidesEntriesBeyondTheLimit(t *testing.T) {
	t.Parallel()
	vitals := append(field("x-death", 'A', container()...), field("x-retry-count", 'I', 0, 0, 0, 3)...)
	vitals = append(vitals, field("x-delivery-count", 'S', 0, 0, 0, 1, '4')...)
	for name, entries := range map[string][][]byte{
		"8193 small":   {many(8193-2, func(int) []byte { return field("", 'V') }), vitals},
		"20000":        {many(20000, func(i int) []byte { return field(fmt.Sprint(i), 'V') }), vitals},
		"20000 behind": {vitals, many(20000, func(i int) []byte { return field(fmt.Sprint(i), 'V') })},
	} {
		t.Run(name, func(t *testing.T) {
			h := header(entries...)
			size := len(h)
			out, lost := sanitize(h, noLimit)
			if len(out) != size || lost == 0 {
				t.Fatalf("size %d of %d, lost %d", len(out), size, lost)
			}
			d, ok := newReader(t, plain).deliver(t, out)
			if !ok {
				t.Fatal("the library could not read it")
			}
			if d.Headers["x-retry-count"] != int32(3) || d.Headers["x-delivery-count"] != "4" || d.DeliveryMode != 2 {
				t.Error("a count or a property is gone")
			}
			if _, there := d.Headers["x-death"]; !there {
				t.Error("x-death is gone")
			}
			if _, there := d.Headers[hiddenKey].([]byte); !there {
				t.Error("nothing says that entries are hidden")
			}
		})
	}
}

func TestSanitizeShrinksAFrameThatOutgrewTheLimit(t *testing.T) {
	t.Parallel()
	const limit = FrameMax - frameHead - frameTail
	big := func(n int) []byte { return long(strings.Repeat("x", n)) }
	tests := map[string]struct {
		entries [][]byte
		gone    []string
		kept    []string
	}{
		"the largest goes first": {
			[][]byte{field("small", 'S', big(10)...), field("huge", 'S', big(130990)...), field("x-death", 'A', container()...), field("x-retry-count", 'I', 0, 0, 0, 3)},
			[]string{"huge"}, []string{"small", "x-death", "x-retry-count"},
		},
		"a vital one last, and its name stays": {
			[][]byte{field("small", 'S', big(100)...), field("x-death", 'S', big(131000)...)},
			[]string{"small"}, []string{"x-death"},
		},
		"also what was hidden": {
			[][]byte{many(20000, func(i int) []byte { return field(fmt.Sprintf("%06d", i), 'V') }), field("x-retry-count", 'I', 0, 0, 0, 3)},
			[]string{hiddenKey}, []string{"x-retry-count"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			out, lost := sanitize(header(tt.entries...), limit)
			if len(out) > limit || lost == 0 {
				t.Fatalf("%d bytes, limit %d, lost %d", len(out), limit, lost)
			}
			d, ok := newReader(t, plain).deliver(t, out)
			if !ok || d.DeliveryMode != 2 || d.ContentType != "text/plain" {
				t.Fatalf("not readable, or a property changed: %v", ok)
			}
			for _, k := range tt.gone {
				if _, there := d.Headers[k]; there {
					t.Errorf("%s is still there", k)
				}
			}
			for _, k := range tt.kept {
				if _, there := d.Headers[k]; !there {
					t.Errorf("%s is gone", k)
				}
			}
		})
	}
}

// A few bytes of nonsense have no room for a marker. No broker lets them through; the library will say so.
func TestSanitizeLeavesNonsenseAlone(t *testing.T) {
	t.Parallel()
	for name, payload := range map[string][]byte{
		"empty": {}, "short": {0, 60}, "table of two bytes": header([]byte{9, 9}), "no length": header()[:26],
		"length beyond the end": append(header()[:25], 0, 0, 1, 0), "properties end": append(header()[:12], 0xA0, 0),
	} {
		out, lost := sanitize(bytes.Clone(payload), noLimit)
		if !bytes.Equal(out, payload) || lost != 0 {
			t.Errorf("%s: %x became %x, lost %d", name, payload, out, lost)
		}
	}
}

// wellFormed is the grammar of a content header, written down once more and without any limit.
func wellFormed(payload []byte) bool {
	start, end, ok := headerTable(payload)
	if !ok {
		return false
	}
	var table, array func(b []byte) bool
	value := func(b []byte) (int, bool) {
		if n, ok := brokertest.FixedSizes[b[0]]; ok {
			return 1 + n, 1+n <= len(b)
		}
		if !strings.ContainsRune("SxAF", rune(b[0])) || len(b) < 5 {
			return 0, false
		}
		n := int(binary.BigEndian.Uint32(b[1:]))
		if n > len(b)-5 {
			return 0, false
		}
		ok := true
		switch b[0] {
		case 'A':
			ok = array(b[5 : 5+n])
		case 'F':
			ok = table(b[5 : 5+n])
		}
		return 5 + n, ok
	}
	array = func(b []byte) bool {
		for len(b) > 0 {
			n, ok := value(b)
			if !ok {
				return false
			}
			b = b[n:]
		}
		return true
	}
	table = func(b []byte) bool {
		for len(b) > 0 {
			k := 1 + int(b[0])
			if k >= len(b) {
				return false
			}
			n, ok := value(b[k:])
			if !ok {
				return false
			}
			b = b[k+n:]
		}
		return true
	}
	return table(payload[start:end]) && propertiesFit(payload, end)
}

// propertiesFit checks what follows the header table.
func propertiesFit(payload []byte, at int) bool {
	flags := binary.BigEndian.Uint16(payload[headerFixed-2:])
	for bit := uint16(0x1000); bit >= 0x0004; bit >>= 1 {
		if flags&bit == 0 {
			continue
		}
		size := 1
		switch {
		case bit == 0x0040: // timestamp
			size = 8
		case bit != 0x1000 && bit != 0x0800: // a short string
			if at >= len(payload) {
				return false
			}
			size = 1 + int(payload[at])
		}
		if at += size; at > len(payload) {
			return false
		}
	}
	return true
}

func FuzzSanitize(f *testing.F) {
	f.Add([]byte{})
	f.Add(header())
	f.Add(header(field("deep", 'A', nested(40)...), field("L", 'L', 0, 0, 0, 0, 0, 0, 0, 9)))
	f.Add(header(field("F", 'F', container(field("s", 'S', 0, 0, 1, 0))...)))
	f.Add(header(many(9000, func(int) []byte { return field("", 'V') })))
	f.Add(header(field("x-death", 'A', container(append([]byte{'F'}, container(field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1))...))...)))
	f.Add([]byte("\x00<\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00 \x00\x00\x00\x00\x02\x00?"))
	judge := newReader(f, plain)
	f.Fuzz(func(t *testing.T, payload []byte) {
		readable := wellFormed(payload)
		before := bytes.Clone(payload)
		out, _ := sanitize(payload, noLimit)
		if len(payload) <= noLimit && len(out) != len(before) {
			t.Fatalf("%d bytes became %d", len(before), len(out))
		}
		again, lost := sanitize(bytes.Clone(out), noLimit)
		if !bytes.Equal(again, out) && readable {
			t.Fatalf("sanitizing twice is different; lost %d", lost)
		}
		for _, limit := range []int{len(before) / 2, 40} {
			if short, _ := sanitize(bytes.Clone(before), limit); len(short) > len(before) {
				t.Fatalf("%d bytes became %d", len(before), len(short))
			}
		}
		if !readable || len(out) > FrameMax-frameHead-frameTail {
			return
		}
		if _, ok := judge.deliver(t, bytes.Clone(out)); !ok {
			judge = newReader(t, plain)
			t.Fatalf("the library cannot read %x, made from %x", out, before)
		}
	})
}
