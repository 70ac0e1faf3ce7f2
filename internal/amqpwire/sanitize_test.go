package amqpwire

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"reflect"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

const noLimit = 1 << 20

func plain(c net.Conn) io.ReadWriteCloser { return c }

// delivered returns what the library reads of a content header that was sanitized, and how many entries were lost.
func delivered(t *testing.T, h []byte, limit int) (d amqp.Delivery, lost int) {
	t.Helper()
	size := len(h)
	out, lost := sanitize(h, limit)
	if len(out) > limit || size <= limit && len(out) != size {
		t.Fatalf("%d bytes became %d, limit %d", size, len(out), limit)
	}
	d, ok := newReader(t, plain).deliver(t, out)
	if !ok || d.DeliveryMode != 2 || d.ContentType != "text/plain" {
		t.Fatalf("the library cannot read it, or another property changed: %v %v", ok, d)
	}
	return d, lost
}

// resembles compares a header with the wanted value; of an array and of bytes only the type matters.
func resembles(got, want any) bool {
	switch want.(type) {
	case []any, []byte:
		return reflect.TypeOf(got) == reflect.TypeOf(want)
	}
	return got == want
}

func TestSanitizeMakesHostileTablesReadable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		entries []byte
		lost    int
		want    amqp.Table // besides another header
	}{
		"depth 32 stays":      {field("deep", 'A', nested(32)...), 0, amqp.Table{"deep": []any{}}},
		"depth 33 is opaque":  {field("deep", 'A', nested(33)...), 1, amqp.Table{"deep": []byte{}}},
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
	} {
		t.Run(name, func(t *testing.T) {
			d, lost := delivered(t, header(tt.entries, field("good", 'I', 0, 0, 0, 7)), noLimit)
			if lost != tt.lost || d.Headers["good"] != int32(7) {
				t.Errorf("lost %d, want %d; the other header is %v", lost, tt.lost, d.Headers["good"])
			}
			for k, want := range tt.want {
				if got, there := d.Headers[k]; !there || !resembles(got, want) {
					t.Errorf("%s is %T, want %T", k, got, want)
				}
			}
		})
	}
}

// TestSanitizeKeepsWhatCounts: of too many entries, and of a frame that outgrew the limit, counts and x-death stay.
func TestSanitizeKeepsWhatCounts(t *testing.T) {
	t.Parallel()
	const limit = FrameMax - frameHead - frameTail
	big := func(n int) []byte { return long(strings.Repeat("x", n)) }
	voids := func(n int, name string) []byte {
		return many(n, func(i int) []byte { return field(fmt.Sprintf(name, i), 'V') })
	}
	count, death := field("x-retry-count", 'I', 0, 0, 0, 3), field("x-death", 'A', container()...)
	vital := slices.Concat(death, count, field("x-delivery-count", 'S', 0, 0, 0, 1, '4'))
	kept := amqp.Table{"x-death": []any{}, "x-retry-count": int32(3), "x-delivery-count": "4", hiddenKey: []byte{}}
	for name, tt := range map[string]struct {
		entries [][]byte
		limit   int
		kept    amqp.Table
		gone    string
	}{
		"8193 small":             {[][]byte{many(8193-2, func(int) []byte { return field("", 'V') }), vital}, noLimit, kept, ""},
		"20000":                  {[][]byte{voids(20000, "%d"), vital}, noLimit, kept, "19999"},
		"20000 behind":           {[][]byte{vital, voids(20000, "%d")}, noLimit, kept, "19999"},
		"the largest goes first": {[][]byte{field("small", 'S', big(1)...), field("huge", 'S', big(130990)...), death, count}, limit, amqp.Table{"small": "x", "x-death": []any{}, "x-retry-count": int32(3)}, "huge"},
		"a vital one last, and its name stays": {
			[][]byte{field("small", 'S', big(100)...), field("x-death", 'S', big(131000)...)}, limit, amqp.Table{"x-death": strings.Repeat("x", 131000)}, "small",
		},
		"also what was hidden": {[][]byte{voids(20000, "%06d"), count}, limit, amqp.Table{"x-retry-count": int32(3)}, hiddenKey},
	} {
		t.Run(name, func(t *testing.T) {
			d, lost := delivered(t, header(tt.entries...), tt.limit)
			if _, there := d.Headers[tt.gone]; lost == 0 || there && tt.gone != "" {
				t.Errorf("lost %d, and %s is there: %v", lost, tt.gone, there)
			}
			for k, want := range tt.kept {
				if got, there := d.Headers[k]; !there || !resembles(got, want) {
					t.Errorf("%s is %v, want %v", k, got, want)
				}
			}
		})
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
