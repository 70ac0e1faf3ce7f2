package test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// existing is a system of docs/beside.md, as its own documents describe it.
type existing struct {
	objects  string // lines of exampleTables
	service  string // the queue that is consumed
	exchange string // producers publish there, with key
	key      string
	parked   string // dead-letter queue
	missing  bool   // objects of retries are not there yet: the sidecar declares them
	soon     bool   // a retry returns within seconds
}

var existingSystems = map[string]existing{
	"fanout": {
		objects: fanout("wms", "wms-cincout"), service: "wms.queue.wms-cincout", exchange: "wms.main-exchange",
		parked: "wms.dlq.wms-cincout", soon: true,
	},
	"topic-tiers": {
		objects: topicTiers("user"), service: "freeflow.user", exchange: "freeflow.events", key: "user.created",
		parked: "freeflow.events.dlq",
	},
	"per-queue": {
		objects: perQueue("domain.events", "validator", "files.uploaded.*"), service: "q.validator", exchange: "domain.events",
		key: "files.uploaded.pdf", parked: "q.validator.dlq",
	},
	"delay-ladder": {
		objects: exampleTables["delay-ladder/demo.order_processor.json"], service: "demo.order_processor", exchange: "demo.events",
		key: "order.process", parked: "demo.order_processor.dlq", soon: true,
	},
	"dead-letter": {
		objects: `
exchange foodies topic
exchange foodies.dlx topic
queue order-service.order-placed x-dead-letter-exchange="foodies.dlx" x-dead-letter-routing-key="order-service.order-placed.dlq"
queue order-service.order-placed.dlq
binding foodies order.placed order-service.order-placed
binding foodies.dlx order-service.order-placed.dlq order-service.order-placed.dlq
`,
		service: "order-service.order-placed", exchange: "foodies", key: "order.placed",
		parked: "order-service.order-placed.dlq", missing: true, soon: true,
	},
	"limited": {
		objects: `
exchange shop topic
exchange shop.dlx direct
queue orders.dead x-queue-type="quorum"
queue orders x-queue-type="quorum" x-delivery-limit=5 x-dead-letter-exchange="shop.dlx" x-dead-letter-routing-key="orders"
binding shop order.* orders
binding shop.dlx orders orders.dead
`,
		service: "orders", exchange: "shop", key: "order.placed", parked: "orders.dead", missing: true, soon: true,
	},
	"bare": {
		objects: `
exchange shop topic
queue orders x-max-priority=10 x-max-length=100000 x-overflow="reject-publish"
binding shop order.* orders
`,
		service: "orders", exchange: "shop", key: "order.placed", parked: "shop.dlq.shop-orders", missing: true, soon: true,
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
			if want := map[bool]int{true: 2}[system.missing]; r.code != want {
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

var loginShown = regexp.MustCompile(`(?:127\.0\.0\.1:\d+, )?virtual host "[^"]+"(?:, user "[^"]+")?`)

// settled is the output of a check without what differs from broker to broker: where it is, and before RabbitMQ 4.0 a
// queue has no delivery limit of its own.
func settled(t *testing.T, output string) string {
	t.Helper()
	output = loginShown.ReplaceAllString(output, "virtual host")
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

// declare declares the objects of the lines.
func (e *existing) declare(t *testing.T) {
	t.Helper()
	ch := brokertest.Channel(t, brokertest.URL(t))
	for line := range strings.Lines(e.objects) {
		switch words := strings.Fields(line); {
		case len(words) == 0:
		case words[0] == "exchange":
			must.Do(t, ch.ExchangeDeclare(words[1], words[2], true, false, false, false, nil))
		case words[0] == "queue":
			args := amqp.Table{}
			for _, arg := range words[2:] {
				name, value, _ := strings.Cut(arg, "=")
				var v any
				must.Do(t, json.Unmarshal([]byte(value), &v))
				if n, ok := v.(float64); ok {
					v = int64(n)
				}
				args[name] = v
			}
			must.Get(ch.QueueDeclare(words[1], true, false, false, false, args))(t)
		case words[0] == "binding":
			must.Do(t, ch.QueueBind(words[3], strings.Trim(words[2], `"`), words[1], false, nil))
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
	raw := must.Get(os.ReadFile(filepath.Join("..", "docs", "beside.md")))(t)
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
