package test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// existing is a system of docs/beside.md, as its own documents describe it.
type existing struct {
	exchanges map[string]string
	queues    map[string]amqp.Table
	bindings  [][3]string // queue, key, exchange
	service   string      // the queue that is consumed
	exchange  string      // producers publish there, with key
	key       string
	parked    string // dead-letter queue
	missing   bool   // objects of retries are not there yet: the sidecar declares them
	soon      bool   // a retry returns within seconds
}

func leadsTo(exchange, key string, more amqp.Table) amqp.Table {
	args := amqp.Table{"x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}
	maps.Copy(args, more)
	return args
}

func ladderQueue(ms int) amqp.Table {
	return leadsTo("", "demo.order_processor", amqp.Table{"x-message-ttl": ms, "x-queue-type": "quorum"})
}

func tierQueue(ms int) amqp.Table {
	return leadsTo("freeflow.events", "user.retry", amqp.Table{"x-message-ttl": ms})
}

var existingSystems = map[string]existing{
	"fanout": {
		exchanges: map[string]string{"wms.main-exchange": "fanout", "wms.retry-exchange.wms-cincout": "direct"},
		queues: map[string]amqp.Table{
			"wms.queue.wms-cincout":       leadsTo("wms.retry-exchange.wms-cincout", "retry", nil),
			"wms.retry-queue.wms-cincout": leadsTo("", "wms.queue.wms-cincout", amqp.Table{"x-message-ttl": 5000}),
			"wms.dlq.wms-cincout":         nil,
		},
		bindings: [][3]string{
			{"wms.queue.wms-cincout", "", "wms.main-exchange"},
			{"wms.retry-queue.wms-cincout", "retry", "wms.retry-exchange.wms-cincout"},
		},
		service: "wms.queue.wms-cincout", exchange: "wms.main-exchange", parked: "wms.dlq.wms-cincout", soon: true,
	},
	"topic-tiers": {
		exchanges: map[string]string{
			"freeflow.events": "topic", "freeflow.events.retry": "direct", "freeflow.events.dlx": "fanout",
		},
		queues: map[string]amqp.Table{
			"freeflow.user":           {"x-dead-letter-exchange": "freeflow.events.dlx"},
			"freeflow.user.retry.30s": tierQueue(30_000), "freeflow.user.retry.5m": tierQueue(300_000),
			"freeflow.user.retry.30m": tierQueue(1_800_000), "freeflow.events.dlq": nil,
		},
		bindings: [][3]string{
			{"freeflow.user", "user.*", "freeflow.events"}, {"freeflow.events.dlq", "", "freeflow.events.dlx"},
			{"freeflow.user.retry.30s", "user.30s", "freeflow.events.retry"},
			{"freeflow.user.retry.5m", "user.5m", "freeflow.events.retry"},
			{"freeflow.user.retry.30m", "user.30m", "freeflow.events.retry"},
		},
		service: "freeflow.user", exchange: "freeflow.events", key: "user.created", parked: "freeflow.events.dlq",
	},
	"per-queue": {
		exchanges: map[string]string{
			"domain.events": "topic", "retry.q.validator": "direct", "dlq.q.validator": "direct",
		},
		queues: map[string]amqp.Table{
			"q.validator":       leadsTo("retry.q.validator", "retry", nil),
			"q.validator.retry": leadsTo("", "q.validator", amqp.Table{"x-message-ttl": 15000}), "q.validator.dlq": nil,
		},
		bindings: [][3]string{
			{"q.validator", "files.uploaded.*", "domain.events"}, {"q.validator.retry", "retry", "retry.q.validator"},
			{"q.validator.dlq", "parking", "dlq.q.validator"},
		},
		service: "q.validator", exchange: "domain.events", key: "files.uploaded.pdf", parked: "q.validator.dlq",
	},
	"delay-ladder": {
		exchanges: map[string]string{"demo.events": "topic"},
		queues: map[string]amqp.Table{
			"demo.order_processor":          leadsTo("", "demo.order_processor.dlq", amqp.Table{"x-queue-type": "quorum"}),
			"demo.order_processor.delay_2s": ladderQueue(2000), "demo.order_processor.delay_5s": ladderQueue(5000),
			"demo.order_processor.delay_15s": ladderQueue(15000), "demo.order_processor.dlq": {"x-queue-type": "quorum"},
		},
		bindings: [][3]string{{"demo.order_processor", "order.process", "demo.events"}},
		service:  "demo.order_processor", exchange: "demo.events", key: "order.process", parked: "demo.order_processor.dlq", soon: true,
	},
	"dead-letter": {
		exchanges: map[string]string{"foodies": "topic", "foodies.dlx": "topic"},
		queues: map[string]amqp.Table{
			"order-service.order-placed":     leadsTo("foodies.dlx", "order-service.order-placed.dlq", nil),
			"order-service.order-placed.dlq": nil,
		},
		bindings: [][3]string{
			{"order-service.order-placed", "order.placed", "foodies"},
			{"order-service.order-placed.dlq", "order-service.order-placed.dlq", "foodies.dlx"},
		},
		service: "order-service.order-placed", exchange: "foodies", key: "order.placed",
		parked: "order-service.order-placed.dlq", missing: true, soon: true,
	},
	"bare": {
		exchanges: map[string]string{"shop": "topic"},
		queues: map[string]amqp.Table{
			"orders": {"x-max-priority": 10, "x-max-length": 100_000, "x-overflow": "reject-publish"},
		},
		bindings: [][3]string{{"orders", "order.*", "shop"}},
		service:  "orders", exchange: "shop", key: "order.placed", parked: "shop.dlq.shop-orders", missing: true, soon: true,
	},
}

// TestBeside: each system of docs/beside.md, with the environment that the page gives. `sidecar check` prints what the
// page shows, messages are acked, retried and parked, and the objects stay what they were.
func TestBeside(t *testing.T) {
	t.Parallel()
	page := besideBlocks(t)
	if shown, want := slices.Sorted(maps.Keys(page)), slices.Sorted(maps.Keys(existingSystems)); !slices.Equal(shown, want) {
		t.Fatalf("the page shows %v, want %v", shown, want)
	}
	for name, system := range existingSystems {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			system.declare(t)
			sc := newScene(t)
			delete(sc.env, "SIDECAR_RETRY_DELAY")
			maps.Copy(sc.env, page[name].env)
			sc.with("PARK_ON_STATUS", "422")

			r := command(t, sc.env, "check")
			if got := settled(t, r.all()); got != settled(t, page[name].check) {
				t.Errorf("check prints\n%s", r.all())
			}
			if want := map[bool]int{true: 1}[system.missing]; r.code != want {
				t.Errorf("check: exit %d", r.code)
			}

			sc.app.on("fails", status(500), status(200))
			sc.app.on("bad", status(422))
			s := sc.run()
			sc.publish(system.exchange, system.key, messages("good", "bad")...)
			brokertest.Eventually(t, patience, "good, and no other, is acked", func() bool { return slices.Equal(s.log.outcomes("good"), []string{"ack"}) })
			if d := sc.take(system.parked, 1)[0]; d.MessageId != "bad" || d.Headers["x-original-queue"] != system.service {
				t.Errorf("parked %s with %v", d.MessageId, d.Headers)
			}
			if system.soon {
				sc.publish(system.exchange, system.key, message("fails"))
				brokertest.Eventually(t, patience, "a retry", func() bool { return slices.Equal(s.log.outcomes("fails"), []string{"retry", "ack"}) })
			}
			system.declare(t) // as before
		})
	}
}

// settled is the output of a check without what differs from broker to broker: before RabbitMQ 4.0 a queue has no
// delivery limit of its own.
func settled(t *testing.T, output string) string {
	t.Helper()
	if !strings.HasPrefix(brokertest.Version(t), "3.") {
		return output
	}
	var kept []string
	for finding := range strings.SplitSeq("\n"+output, "\n") {
		if strings.HasPrefix(finding, " ") && len(kept) > 0 {
			kept[len(kept)-1] += "\n" + finding
			continue
		}
		kept = append(kept, finding)
	}
	kept = slices.DeleteFunc(kept, func(finding string) bool { return strings.Contains(finding, "x-delivery-limit") })
	return strings.Join(kept, "\n")
}

func (e *existing) declare(t *testing.T) {
	t.Helper()
	ch := brokertest.Channel(t, brokertest.URL(t))
	for name, kind := range e.exchanges {
		if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for name, args := range e.queues {
		if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	for _, b := range e.bindings {
		if err := ch.QueueBind(b[0], b[1], b[2], false, nil); err != nil {
			t.Fatal(err)
		}
	}
}

type besideBlock struct {
	env   map[string]string
	check string
}

// besideBlocks are the sections of docs/beside.md that begin with <!-- tested: name -->: an environment, and what check
// prints.
func besideBlocks(t *testing.T) map[string]besideBlock {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "docs", "beside.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]besideBlock{}
	for _, section := range strings.Split(string(raw), "<!-- tested: ")[1:] {
		name, rest, _ := strings.Cut(section, " -->\n")
		env := environments(rest)
		_, rest, _ = strings.Cut(rest, "```console\n$ sidecar check\n")
		check, _, ok := strings.Cut(rest, "```\n")
		if !ok || len(env) != 1 {
			t.Fatalf("%s: %d environments", name, len(env))
		}
		all[name] = besideBlock{env[0], check}
	}
	return all
}
