package brokertest

import (
	"encoding/binary"
	"fmt"
)

// NamedHeader is a content header for benchmarks.
type NamedHeader struct {
	Name   string
	Header []byte
	Allocs float64 // at most, to read it
}

// BenchHeaders returns content headers with few and many entries.
func BenchHeaders() []NamedHeader {
	death := append([]byte{'F'}, Container(
		Field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1), Field("reason", 'S', Long("rejected")...),
		Field("queue", 'S', Long("wms.queue.wms-cincout")...), Field("time", 'T', 0, 0, 0, 0, 0, 0, 0, 1),
		Field("exchange", 'S', Long("wms.main-exchange")...),
		Field("routing-keys", 'A', Container(append([]byte{'S'}, Long("order.created")...))...))...)
	plain := func(n int) []byte {
		return Header(Many(n, func(i int) []byte {
			return Field(fmt.Sprintf("x-tenant-%02d", i), 'S', Long(fmt.Sprintf("value-%d", i))...)
		}))
	}
	none := append([]byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 0x90, 0)
	none = append(append(none, Short("text/plain")...), 2)
	return []NamedHeader{
		{"headers=0", none, 0}, {"headers=8", plain(8), 13}, {"headers=64", plain(64), 71},
		{"deaths=2", Header(Field("x-death", 'A', Container(death, death)...)), 25},
	}
}

// BenchDelivery encodes one message of 1 KiB in frames, to the consumer tag.
func BenchDelivery(tag string, header []byte) []byte {
	const size = 1024
	binary.BigEndian.PutUint64(header[4:], size)
	d := Frame(1, 1, Method(60, 60, Short(tag), make([]byte, 9), Short("wms.main-exchange"), Short("order.created")))
	d = append(d, Frame(2, 1, header)...)
	return append(d, Frame(3, 1, make([]byte, size))...)
}
