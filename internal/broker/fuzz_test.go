package broker

import (
	"bytes"
	"reflect"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// FuzzTable sends what was received out again, as a park does: every table that we read must be one that the client
// library can write, of the size we say it has, and mean the same when it comes back.
func FuzzTable(f *testing.F) {
	f.Add(header(field("n", 'd', 0x7f, 0xf8, 0, 0, 0, 0, 0, 1), field("D", 'D', 2, 0, 0, 48, 57)))
	f.Fuzz(func(t *testing.T, payload []byte) {
		const limit = frameMax - frameHead - frameTail
		payload, _ = defuse(bytes.Clone(payload), limit)
		var first, second amqp.Delivery
		if _, hidden, ok := readContent(payload, &first, &texts{}); !ok || hidden || len(first.Headers) == 0 {
			return
		}
		size, err := TableSize(first.Headers)
		if err != nil {
			t.Fatalf("received, and cannot be sent: %v in %v", err, first.Headers)
		}
		written := publishedHeader(t, first.Headers)
		if start, end, ok := headerTable(written); !ok || size != end-start+4 {
			t.Fatalf("%d bytes; the library writes %d: %v", size, end-start+4, first.Headers)
		}
		written, lost := defuse(written, limit)
		if _, hidden, ok := readContent(written, &second, &texts{}); !ok || hidden || lost > 0 {
			t.Fatalf("lost on the way back: %v", first.Headers)
		}
		if !reflect.DeepEqual(comparable(first.Headers), comparable(second.Headers)) {
			t.Fatalf("sent %v, came back as %v", first.Headers, second.Headers)
		}
	})
}
