package topologytest

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// sixth is a topology that no preset builds, written as the data it is: a headers exchange, retries by confirmed
// publish through an exchange of their own, and never rejects.
//
//	shop ─kind=order▶ orders ─publish▶ orders.later ─┬▶ orders.soon ─ttl▶ orders
//	                    └─publish▶ orders.dead         └▶ orders.late ─ttl▶ orders
func sixth(prefix string, quorum bool) *topology.Plan {
	queue := func(name string, kind topology.Kind, args amqp.Table) topology.Queue {
		if quorum {
			args["x-queue-type"] = "quorum"
			if args[argDLX] != nil {
				args["x-dead-letter-strategy"], args["x-overflow"] = "at-least-once", "reject-publish"
			}
			if kind != topology.KindRetry {
				args["x-delivery-limit"] = int64(2147483647)
			}
		}
		return topology.Queue{Name: name, Kind: kind, Args: args}
	}
	shop, orders, later, dead := prefix+".shop", prefix+".orders", prefix+".orders.later", prefix+".orders.dead"
	wait := func(tier string, delay time.Duration) (topology.Queue, topology.Binding, topology.WaitPath) {
		name := orders + "." + tier
		return queue(name, topology.KindRetry, amqp.Table{"x-message-ttl": delay.Milliseconds(), argDLX: "", argDLKey: orders}),
			topology.Binding{Exchange: later, Key: tier, Queue: name},
			topology.WaitPath{Delay: delay, Route: topology.Route{Exchange: later, Key: tier, Queue: name}}
	}
	soonQueue, soonBinding, soon := wait("soon", 200*time.Millisecond)
	lateQueue, lateBinding, late := wait("late", time.Second)
	return &topology.Plan{
		Preset: "sixth", Service: "shop-orders", Queue: orders,
		Exchanges: []topology.Exchange{{Name: shop, Type: "headers"}, {Name: later, Type: "direct"}},
		Queues: []topology.Queue{
			queue(dead, topology.KindDLQ, amqp.Table{}), soonQueue, lateQueue,
			queue(orders, topology.KindMain, amqp.Table{argDLX: "", argDLKey: dead}),
		},
		Bindings: []topology.Binding{
			{Exchange: shop, Queue: orders, Args: amqp.Table{"x-match": "all", "kind": "order"}}, soonBinding, lateBinding,
		},
		Waits: []topology.WaitPath{soon, late}, Tiered: true,
		Park: topology.Route{Key: dead, Queue: dead}, Redrive: topology.Route{Key: orders, Queue: orders},
		MaxRetries: 3, Quorum: quorum,
	}
}

// TestSixthTopology: a topology is a value. This one needs no line of code anywhere else.
func TestSixthTopology(t *testing.T) {
	t.Parallel()
	for _, quorum := range []bool{false, true} {
		t.Run(fmt.Sprintf("quorum=%v", quorum), func(t *testing.T) {
			t.Parallel()
			Exercise(t, sixth("six", quorum))
		})
	}
}

// TestTheHeadersExchangeSorts: the binding's arguments reach the broker, which sends on what matches and nothing else.
func TestTheHeadersExchangeSorts(t *testing.T) {
	t.Parallel()
	plan, url := sixth("six", false), brokertest.URL(t)
	declareTopology(t, url, plan)
	ch := brokertest.Channel(t, url)
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	exchange, key, headers := front(plan)
	m := message("order")
	m.Headers = headers
	brokertest.Publish(t, ch, exchange, key, m)
	brokertest.WaitReady(t, url, plan.Queue, 1)
	confirm, err := ch.PublishWithDeferredConfirm(exchange, key, true, false, amqp.Publishing{Headers: amqp.Table{"kind": "invoice"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := confirm.WaitContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	select {
	case <-returned:
	default:
		t.Error("a message that does not match found a queue")
	}
}
