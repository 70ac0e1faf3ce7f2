package brokertest

import (
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxGrown is how deep Value nests.
const maxGrown = 100

// Value builds one AMQP header value of any type and shape from the bytes it takes off b: what a fuzzer makes of bytes
// becomes what a publisher makes of headers. Missing bytes count as 0. The last kind is no AMQP type at all. The
// corpora of the fuzz targets depend on what each byte means.
func Value(b *[]byte) any { return grow(b, 0) }

func grow(b *[]byte, depth int) any {
	switch kind := next(b, 1) % 18; kind {
	case 0:
		return nil
	case 1:
		return next(b, 1)%2 == 0
	case 2, 3, 4, 5, 6, 7, 8:
		return integer(b, kind)
	case 9:
		return math.Float32frombits(uint32(next(b, 4)))
	case 10:
		return math.Float64frombits(next(b, 8))
	case 11:
		return time.Unix(int64(next(b, 8)), 0)
	case 12:
		return amqp.Decimal{Scale: uint8(next(b, 1)), Value: int32(next(b, 4))}
	case 13:
		return string(text(b))
	case 14:
		return text(b)
	case 15:
		var a []any
		for range children(b, depth) {
			a = append(a, grow(b, depth+1))
		}
		return a
	case 16:
		t := amqp.Table{}
		for range children(b, depth) {
			t[strconv.FormatUint(next(b, 1), 36)] = grow(b, depth+1)
		}
		return t
	}
	return struct{}{}
}

// next takes n bytes as a little-endian number.
func next(b *[]byte, n int) uint64 {
	var buf [8]byte
	*b = (*b)[copy(buf[:n], *b):]
	return binary.LittleEndian.Uint64(buf[:])
}

func integer(b *[]byte, kind uint64) any {
	switch kind {
	case 2:
		return int8(next(b, 1))
	case 3:
		return uint8(next(b, 1))
	case 4:
		return int16(next(b, 2))
	case 5:
		return uint16(next(b, 2))
	case 6:
		return int32(next(b, 4))
	case 7:
		return uint32(next(b, 4))
	}
	return int64(next(b, 8))
}

func text(b *[]byte) []byte {
	n := min(int(next(b, 1)), len(*b))
	s := slices.Clone((*b)[:n])
	*b = (*b)[n:]
	return s
}

func children(b *[]byte, depth int) uint64 {
	n := next(b, 1) % 8
	if depth > maxGrown {
		return 0
	}
	return n
}
