package broker

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// content returns the properties of a message for brokertest.Raw: values by flag, in the order of the flags.
func content(flags uint16, values ...[]byte) []byte {
	return slices.Concat(binary.BigEndian.AppendUint16(nil, flags), slices.Concat(values...))
}

// contents are messages that differ from each other in one property or header.
func contents() map[string][]byte {
	field, container, long, short := brokertest.Field, brokertest.Container, brokertest.Long, brokertest.Short
	all := map[string][]byte{
		"nothing":      content(0),
		"content type": content(0x8000, short("text/plain")), "empty content type": content(0x8000, short("")),
		"content encoding": content(0x4000, short("gzip")), "transient": content(0x1000, []byte{1}),
		"persistent": content(0x1000, []byte{2}), "priority 0": content(0x0800, []byte{0}),
		"priority 1": content(0x0800, []byte{1}), "correlation id": content(0x0400, short("a")),
		"reply to": content(0x0200, short("a")), "expiration": content(0x0100, short("3600000")),
		"message id": content(0x0080, short("a")), "empty message id": content(0x0080, short("")),
		"timestamp 0": content(0x0040, make([]byte, 8)), "timestamp 1": content(0x0040, []byte{0, 0, 0, 0, 0, 0, 0, 1}),
		"type": content(0x0020, short("a")), "user id": content(0x0010, short("guest")), "app id": content(0x0008, short("a")),
		"cluster id": content(0x0004, short("a")), "all": content(0xfffc, short("a"), short("b"), container(field("h", 'V')),
			[]byte{2}, []byte{3}, short("c"), short("d"), short("3600000"), short("f"), make([]byte, 8), short("g"), short("guest"),
			short("h"), short("i")),
	}
	many := brokertest.Many(40, func(i int) []byte { return field(fmt.Sprint("many-", 39-i), 'I', 0, 0, 0, byte(i)) })
	for name, entries := range map[string][]byte{
		"int8": field("h", 'b', 1), "uint8": field("h", 'B', 1), "int16": field("h", 's', 0, 1), "uint16": field("h", 'u', 0, 1),
		"int32": field("h", 'I', 0, 0, 0, 1), "uint32": field("h", 'i', 0, 0, 0, 1), "int64": field("h", 'l', 0, 0, 0, 0, 0, 0, 0, 1), // a broker makes it of 'L', too
		"true": field("h", 't', 1), "false": field("h", 't', 0),
		"text": field("h", 'S', long("1")...), "bytes": field("h", 'x', long("1")...), "no bytes": field("h", 'x', long("")...),
		"nil": field("h", 'V'), "time": field("h", 'T', 0, 0, 0, 0, 0, 0, 0, 1), "decimal": field("h", 'D', 0, 0, 0, 0, 1),
		"decimal 0.1": field("h", 'D', 1, 0, 0, 0, 1), "float32": field("h", 'f', 0x3f, 0x80, 0, 0),
		"float64": field("h", 'd', 0x3f, 0xf0, 0, 0, 0, 0, 0, 0), "not a number": field("h", 'd', 0x7f, 0xf8, 0, 0, 0, 0, 0, 1),
		"no elements":          field("h", 'A', container()...),
		"an array in an array": field("h", 'A', container(slices.Concat([]byte("A"), container()))...),
		"two arrays":           field("h", 'A', container([]byte("A"), container(), []byte("A"), container())...),
		"a table in an array":  field("h", 'A', container([]byte("F"), container())...), "a table": field("h", 'F', container()...),
		"a nested header": field("h", 'F', container(field("n", 'F', container(field("z", 'V'), field("a", 'S', long("1")...))...))...),
		"another name":    field("i", 'V'), "two headers": slices.Concat(field("z", 'V'), field("a", 'S', long("1")...)), "many headers": many,
		"x-death of others": field("x-death", 'A', container([]byte("F"), container(field("queue", 'S', long("other")...), field("count", 'l', 0, 0, 0, 0, 0, 0, 0, 1)))...),
	} {
		all[name] = content(0x2000, container(entries))
	}
	return all
}

// TestIdentity: each of these messages has an identity of its own, which no further delivery changes, whatever the
// broker writes into the message meanwhile.
func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		t.Run(queueType, func(t *testing.T) {
			t.Parallel()
			url := brokertest.URL(t)
			q := brokertest.Queue(t, url, brokertest.Name(t, "q"), amqp.Table{"x-queue-type": queueType})
			sent := 0
			raw := brokertest.DialRaw(t, url)
			for name, properties := range contents() {
				err := raw.PublishWith("", q, properties, []byte("x"))
				if err == nil {
					sent++
					continue
				}
				t.Logf("%s: %v", name, err) // what a broker refuses depends on its version
				raw.Close()
				raw = brokertest.DialRaw(t, url)
			}
			raw.Close()
			var first, all map[uint64]string
			for n := range 3 {
				s := dial(t, options(t))
				_, in := subscribe(t, s, q, 1000)
				all = map[uint64]string{}
				for range sent {
					d := in.next(t)
					d.Body, d.DeliveryTag, d.ConsumerTag = nil, 0, ""
					is := fmt.Sprintf("%+v", d.Delivery)
					if other, ok := all[d.Identity]; ok {
						t.Errorf("delivery %d: one identity for %s and %s", n, is, other)
					}
					if all[d.Identity] = is; n > 0 && first[d.Identity] == "" {
						t.Errorf("delivery %d is another message: %s", n, is)
					}
				}
				if n == 0 {
					first = all
				}
				s.Close()
				brokertest.WaitReady(t, url, q, sent)
			}
		})
	}
}
