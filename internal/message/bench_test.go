package message

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

const benchQueue = "wms.queue.wms-cincout"

// decoding is a delivery by what its header table holds.
type decoding struct {
	name    string
	headers amqp.Table
}

func decodings() []decoding {
	wait := expired("wms.retry-queue.wms-cincout")
	return []decoding{
		{"headers=0", nil},
		{"headers=8", plainHeaders(8)},
		{"headers=64", plainHeaders(64)},
		{"deaths=1", dead(rejected(benchQueue, int64(1)))},
		{"deaths=3", dead(rejected("wms.queue.other", int64(1)), wait, rejected(benchQueue, int64(3)))},
	}
}

func plainHeaders(n int) amqp.Table {
	h := amqp.Table{}
	for i := range n {
		h[fmt.Sprintf("x-tenant-%02d", i)] = fmt.Sprintf("value-%d", i)
	}
	return h
}

// dead is what a broker leaves in the header table of a message that it dead-lettered.
func dead(deaths ...any) amqp.Table {
	h := amqp.Table{"x-death": deaths}
	for _, when := range []string{"first", "last"} {
		h["x-"+when+"-death-exchange"] = "wms.main-exchange"
		h["x-"+when+"-death-queue"] = benchQueue
		h["x-"+when+"-death-reason"] = "rejected"
	}
	return h
}

func benchDelivery(h amqp.Table) *amqp.Delivery {
	return &amqp.Delivery{
		Headers: h, ContentType: "application/json", MessageId: "m-1", CorrelationId: "c-1", DeliveryMode: 2,
		Exchange: "wms.main-exchange", RoutingKey: "order.created", Body: make([]byte, 1024), DeliveryTag: 1,
	}
}

func BenchmarkFromDelivery(b *testing.B) {
	for _, c := range decodings() {
		b.Run(c.name, func(b *testing.B) {
			var m Message
			d := benchDelivery(c.headers)
			b.ReportAllocs()
			for b.Loop() {
				m.FromDelivery(d, benchQueue, 10)
			}
		})
	}
}

func TestFromDeliveryAllocatesNothing(t *testing.T) {
	for _, c := range decodings() {
		var m Message
		d := benchDelivery(c.headers)
		if n := testing.AllocsPerRun(100, func() { m.FromDelivery(d, benchQueue, 10) }); n != 0 {
			t.Errorf("%s: %v allocations", c.name, n)
		}
	}
}
