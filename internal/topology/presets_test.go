package topology

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestPresetsToTheLetter spells out the names and arguments of systems that exist: a service that declares the same objects
// must not see a difference.
func TestPresetsToTheLetter(t *testing.T) {
	t.Parallel()
	const main, retry, dlq = KindMain, KindRetry, KindDLQ
	waits := func(ttl int64, exchange, key string) amqp.Table {
		return amqp.Table{"x-message-ttl": ttl, "x-dead-letter-exchange": exchange, "x-dead-letter-routing-key": key}
	}
	durable := func(t amqp.Table) amqp.Table {
		t["x-queue-type"], t["x-dead-letter-strategy"], t["x-overflow"] = "quorum", "at-least-once", "reject-publish"
		return t
	}
	limited := func(t amqp.Table) amqp.Table {
		t["x-queue-type"], t["x-delivery-limit"] = "quorum", int64(2147483647)
		return t
	}
	for _, c := range []struct {
		name string
		o    Options
		want *Plan
	}{
		{"topic-tiers", Options{Preset: "topic-tiers", Service: "freeflow-user"}, &Plan{
			Exchanges: []Exchange{
				{Name: "freeflow.events", Type: "topic", Shared: true}, {Name: "freeflow.events.retry", Type: "direct", Shared: true}, {Name: "freeflow.events.dlx", Type: "fanout", Shared: true},
			},
			Queues: []Queue{
				{Name: "freeflow.events.dlq", Kind: dlq, Shared: true},
				{Name: "freeflow.user.retry.30s", Kind: retry, Args: waits(30_000, "freeflow.events", "user.retry")},
				{Name: "freeflow.user.retry.5m", Kind: retry, Args: waits(300_000, "freeflow.events", "user.retry")},
				{Name: "freeflow.user.retry.30m", Kind: retry, Args: waits(1_800_000, "freeflow.events", "user.retry")},
				{Name: "freeflow.user", Kind: main, Args: amqp.Table{"x-dead-letter-exchange": "freeflow.events.dlx"}},
			},
			Bindings: []Binding{
				{Exchange: "freeflow.events", Key: "user.*", Queue: "freeflow.user"},
				{Exchange: "freeflow.events.dlx", Queue: "freeflow.events.dlq"},
				{Exchange: "freeflow.events.retry", Key: "user.30s", Queue: "freeflow.user.retry.30s"},
				{Exchange: "freeflow.events.retry", Key: "user.5m", Queue: "freeflow.user.retry.5m"},
				{Exchange: "freeflow.events.retry", Key: "user.30m", Queue: "freeflow.user.retry.30m"},
			},
			Queue: "freeflow.user", Tiered: true, StampQueue: true, MaxRetries: 3,
			Waits: []WaitPath{
				{Delay: 30 * time.Second, Route: Route{"freeflow.events.retry", "user.30s", "freeflow.user.retry.30s"}, By: ByPublish},
				{Delay: 5 * time.Minute, Route: Route{"freeflow.events.retry", "user.5m", "freeflow.user.retry.5m"}, By: ByPublish},
				{Delay: 30 * time.Minute, Route: Route{"freeflow.events.retry", "user.30m", "freeflow.user.retry.30m"}, By: ByPublish},
			},
			Park: Route{"freeflow.events.dlx", "freeflow.user", "freeflow.events.dlq"}, Redrive: Route{"", "freeflow.user", "freeflow.user"},
		}},
		{"per-queue", Options{Preset: "per-queue", Service: "upload.commands", Bindings: []Binding{
			{Exchange: "domain.commands", Key: "commands.upload.#"}, {Exchange: "domain.commands", Key: "commands.file.reprocess.*"},
		}}, &Plan{
			Exchanges: []Exchange{
				{Name: "domain.commands", Type: "topic", Shared: true}, {Name: "retry.q.upload.commands", Type: "direct", Shared: false}, {Name: "dlq.q.upload.commands", Type: "direct", Shared: false},
			},
			Queues: []Queue{
				{Name: "q.upload.commands.dlq", Kind: dlq},
				{Name: "q.upload.commands.retry", Kind: retry, Args: waits(15_000, "", "q.upload.commands")},
				{Name: "q.upload.commands", Kind: main, Args: amqp.Table{
					"x-dead-letter-exchange": "retry.q.upload.commands", "x-dead-letter-routing-key": "retry",
				}},
			},
			Bindings: []Binding{
				{Exchange: "domain.commands", Key: "commands.upload.#", Queue: "q.upload.commands"},
				{Exchange: "domain.commands", Key: "commands.file.reprocess.*", Queue: "q.upload.commands"},
				{Exchange: "dlq.q.upload.commands", Key: "parking", Queue: "q.upload.commands.dlq"},
				{Exchange: "retry.q.upload.commands", Key: "retry", Queue: "q.upload.commands.retry"},
			},
			Queue: "q.upload.commands", MaxRetries: 3,
			Waits: []WaitPath{{
				Delay: 15 * time.Second, By: ByReject, Route: Route{"retry.q.upload.commands", "retry", "q.upload.commands.retry"},
			}},
			Park:    Route{"dlq.q.upload.commands", "parking", "q.upload.commands.dlq"},
			Redrive: Route{"retry.q.upload.commands", "retry", "q.upload.commands.retry"},
		}},
		{"delay-ladder", Options{
			Preset: "delay-ladder", Service: "demo-order_processor", Bindings: []Binding{{Exchange: "demo.events", Key: "order.process"}},
		}, &Plan{
			Exchanges: []Exchange{{Name: "demo.events", Type: "topic", Shared: true}},
			Queues: []Queue{
				{Name: "demo.order_processor.dlq", Kind: dlq, Args: limited(amqp.Table{})},
				{Name: "demo.order_processor.delay_2s", Kind: retry, Args: durable(waits(2_000, "", "demo.order_processor"))},
				{Name: "demo.order_processor.delay_5s", Kind: retry, Args: durable(waits(5_000, "", "demo.order_processor"))},
				{Name: "demo.order_processor.delay_15s", Kind: retry, Args: durable(waits(15_000, "", "demo.order_processor"))},
				{Name: "demo.order_processor", Kind: main, Args: limited(durable(amqp.Table{
					"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "demo.order_processor.dlq",
				}))},
			},
			Bindings: []Binding{{Exchange: "demo.events", Key: "order.process", Queue: "demo.order_processor"}},
			Queue:    "demo.order_processor", Tiered: true, Quorum: true, MaxRetries: 3, CountHeader: "x-delivery-count",
			Waits: []WaitPath{
				{Delay: 2 * time.Second, Route: Route{"", "demo.order_processor.delay_2s", "demo.order_processor.delay_2s"}, By: ByPublish},
				{Delay: 5 * time.Second, Route: Route{"", "demo.order_processor.delay_5s", "demo.order_processor.delay_5s"}, By: ByPublish},
				{Delay: 15 * time.Second, Route: Route{"", "demo.order_processor.delay_15s", "demo.order_processor.delay_15s"}, By: ByPublish},
			},
			Park: Route{"", "demo.order_processor.dlq", "demo.order_processor.dlq"}, Redrive: Route{"", "demo.order_processor", "demo.order_processor"},
		}},
		{"dead-letter", Options{
			Preset: "dead-letter", Service: "foodies-order", Queue: "order-service.order-placed",
			Bindings: []Binding{{Exchange: "foodies", Key: "order.placed"}}, MessageTTL: 5 * time.Minute,
		}, &Plan{
			Exchanges: []Exchange{{Name: "foodies", Type: "topic", Shared: true}, {Name: "foodies.dlx", Type: "topic", Shared: true}},
			Queues: []Queue{
				{Name: "order-service.order-placed.dlq", Kind: dlq},
				{Name: "order-service.order-placed.retry", Kind: retry, Args: waits(5_000, "", "order-service.order-placed")},
				{Name: "order-service.order-placed", Kind: main, Args: amqp.Table{
					"x-dead-letter-exchange": "foodies.dlx", "x-dead-letter-routing-key": "order-service.order-placed.dlq",
					"x-message-ttl": int64(300_000),
				}},
			},
			Bindings: []Binding{
				{Exchange: "foodies", Key: "order.placed", Queue: "order-service.order-placed"},
				{Exchange: "foodies.dlx", Key: "order-service.order-placed.dlq", Queue: "order-service.order-placed.dlq"},
			},
			Queue: "order-service.order-placed", MaxRetries: 4,
			Waits: []WaitPath{{
				Delay: 5 * time.Second, By: ByPublish,
				Route: Route{"", "order-service.order-placed.retry", "order-service.order-placed.retry"},
			}},
			Park:    Route{"foodies.dlx", "order-service.order-placed.dlq", "order-service.order-placed.dlq"},
			Redrive: Route{"", "order-service.order-placed", "order-service.order-placed"},
		}},
		{"native", Options{Preset: "native", Service: "shop-billing"}, &Plan{
			Exchanges: []Exchange{{Name: "shop.main-exchange", Type: "fanout", Shared: true}},
			Queues: []Queue{
				{Name: "shop.dlq.shop-billing", Kind: dlq, Args: limited(amqp.Table{})},
				{Name: "shop.queue.shop-billing", Kind: main, Args: durable(amqp.Table{
					"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "shop.dlq.shop-billing", "x-delivery-limit": int64(200),
					"x-delayed-retry-type": "failed", "x-delayed-retry-min": int64(5000), "x-delayed-retry-max": int64(5000),
				})},
			},
			Bindings: []Binding{{Exchange: "shop.main-exchange", Queue: "shop.queue.shop-billing"}},
			Queue:    "shop.queue.shop-billing", Quorum: true, MaxRetries: 10,
			Waits: []WaitPath{{
				Delay: 5 * time.Second, Route: Route{"", "shop.queue.shop-billing", "shop.queue.shop-billing"}, By: ByDelay,
			}},
			Park: Route{"", "shop.dlq.shop-billing", "shop.dlq.shop-billing"}, Redrive: Route{"", "shop.queue.shop-billing", "shop.queue.shop-billing"},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.want.Preset, c.want.Service, c.want.AutoType = c.name, c.o.Service, c.name != PresetNative
			got := build(t, c.o)
			for _, part := range [][2]any{
				{got.Exchanges, c.want.Exchanges}, {got.Queues, c.want.Queues}, {got.Bindings, c.want.Bindings}, {got.Waits, c.want.Waits},
				{got, c.want},
			} {
				if !reflect.DeepEqual(part[0], part[1]) {
					t.Fatalf("got  %+v\nwant %+v", part[0], part[1])
				}
			}
		})
	}
}

// TestPresetsFollowTheirOptions: what is set changes what is made from it, and nothing else.
func TestPresetsFollowTheirOptions(t *testing.T) {
	t.Parallel()
	events := []Binding{{Exchange: "x.events", Key: "a.b"}}
	tiers := Options{Preset: PresetTopicTiers, Service: "x-y"}
	ladder := Options{Preset: PresetDelayLadder, Service: "x-y", Bindings: events}
	perQueue := Options{Preset: PresetPerQueue, Service: "y", Bindings: []Binding{{Exchange: "domain.events", Key: "#"}}}
	deadLetter := Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Bindings: []Binding{{Exchange: "x", Key: "#"}}}
	exchange := func(p *Plan, i int) string { return p.Exchanges[i].Name + " " + p.Exchanges[i].Type }
	queues := func(p *Plan) (names []string) {
		for _, q := range p.Queues {
			names = append(names, q.Name)
		}
		return names
	}
	for _, c := range []struct {
		name string
		o    Options
		set  func(*Options)
		look func(*Plan) any
		want any
	}{
		{"the exchange names its retry and dead-letter exchanges", tiers, func(o *Options) { o.Exchange = "e" }, func(p *Plan) any {
			return exchange(p, 0) + " " + exchange(p, 1) + " " + exchange(p, 2) + " " + p.Park.Queue
		}, "e topic e.retry direct e.dlx fanout e.dlq"},
		{"without a hyphen", tiers, func(o *Options) { o.Service = "y" }, func(p *Plan) any { return p.Queue + " " + p.Bindings[0].Key }, "default.y y.*"},
		{"bindings that retries would not match get one more", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "x.events", Key: "y.created"}} },
			func(p *Plan) any { return p.Bindings[len(p.Bindings)-1] }, Binding{Exchange: "x.events", Key: "y.retry", Queue: "x.y"}},
		{"so do bindings to other exchanges", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "other", Key: "#"}} },
			func(p *Plan) any { return exchange(p, 0) + exchange(p, 3) }, "other x.events topic"},
		{"bindings that they match do not", tiers, func(o *Options) { o.Bindings = []Binding{{Exchange: "x.events", Key: "#"}} },
			func(p *Plan) any { return len(p.Bindings) }, 5},
		{"retries follow the delays", tiers, func(o *Options) { o.RetryDelays = []time.Duration{time.Second} }, func(p *Plan) any { return p.MaxRetries }, 1},
		{"unless they are set", tiers, func(o *Options) { o.RetryDelays, o.MaxRetries = []time.Duration{time.Second}, new(7) },
			func(p *Plan) any { return p.MaxRetries }, 7},
		{"a dead-letter queue of its own", tiers, func(o *Options) { o.DLX, o.DLQ = "y.dlx", "y.dlq" }, func(p *Plan) any {
			dlx, _ := p.queue("x.y").Args[ArgDLX].(string)
			return dlx + " " + p.Park.Exchange + " " + p.Park.Queue
		}, "y.dlx y.dlx y.dlq"},
		{"classic or quorum", tiers, func(o *Options) { o.QueueType = "quorum" }, func(p *Plan) any { return p.queue("x.events.dlq").Args[ArgType] }, "quorum"},

		{"two main exchanges", perQueue, func(o *Options) {
			o.Bindings = []Binding{{Exchange: "domain.events", Key: "a"}, {Exchange: "domain.commands", Key: "b"}, {Exchange: "other", Key: "c"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) + exchange(p, 2) }, "domain.events topicdomain.commands topicother "},
		{"one when it is named", perQueue, func(o *Options) {
			o.Exchange, o.Bindings = "e", []Binding{{Exchange: "e", Key: "a"}, {Exchange: "domain.commands", Key: "b"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) }, "e topicdomain.commands "},
		{"names made from the queue", perQueue, func(o *Options) { o.Queue = "z" }, func(p *Plan) any { return queues(p) }, []string{"z.dlq", "z.retry", "z"}},
		{"tiers", perQueue, func(o *Options) { o.RetryDelays = []time.Duration{time.Second, time.Minute} },
			func(p *Plan) any { return queues(p) }, []string{"q.y.dlq", "q.y.retry", "q.y.retry.1s", "q.y.retry.1m", "q.y"}},

		{"delays are named in seconds", ladder, func(o *Options) { o.RetryDelays = []time.Duration{1500 * time.Millisecond, 5 * time.Minute} },
			func(p *Plan) any { return p.Waits[0].Queue + " " + p.Waits[1].Queue }, "x.y.delay_1.5s x.y.delay_300s"},
		{"no delays", ladder, func(o *Options) { o.RetryDelays = []time.Duration{} }, func(p *Plan) any {
			return []any{p.MaxRetries, len(p.Waits), queues(p)}
		}, []any{0, 0, []string{"x.y.dlq", "x.y"}}},
		{"classic", ladder, func(o *Options) { o.QueueType = "classic" }, func(p *Plan) any { return p.queue("x.y").Args[ArgType] }, "classic"},
		{"an exchange before the delays", ladder, func(o *Options) { o.RetryExchange, o.RetryQueue = "r", "w" },
			func(p *Plan) any { return p.Waits[0].Route }, Route{"r", "w_2s", "w_2s"}},
		{"an exchange before the dead-letter queue", ladder, func(o *Options) { o.DLX = "d" }, func(p *Plan) any {
			dlx, _ := p.queue("x.y").Args[ArgDLX].(string)
			key, _ := p.queue("x.y").Args[ArgDLKey].(string)
			return []any{dlx, key, p.Park}
		}, []any{"d", "x.y.dlq", Route{"d", "x.y.dlq", "x.y.dlq"}}},

		{"tiers without a plain retry queue", deadLetter, func(o *Options) { o.RetryDelays = []time.Duration{time.Second} },
			func(p *Plan) any { return queues(p) }, []string{"q.dlq", "q.retry.1s", "q"}},
		{"nothing kept", deadLetter, func(o *Options) { o.NoDeadLetter = true }, func(p *Plan) any { return []any{p.Park, queues(p), p.queue("q").Args} },
			[]any{Route{}, []string{"q.retry", "q"}, amqp.Table(nil)}},
		{"nothing kept, quorum", deadLetter, func(o *Options) { o.NoDeadLetter, o.QueueType = true, "quorum" },
			func(p *Plan) any { return p.queue("q").Args }, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": int64(2147483647)}},
	} {
		t.Run(c.o.Preset+": "+c.name, func(t *testing.T) {
			o := c.o
			c.set(&o)
			if got := c.look(build(t, o)); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// TestNamesOfSubscriptions: the names of the subscription orders of the service wms-cincout.
func TestNamesOfSubscriptions(t *testing.T) {
	t.Parallel()
	for preset, want := range map[string]string{
		PresetFanout: `wms.main-exchange wms.retry-exchange.wms-cincout.orders / wms.dlq.wms-cincout.orders wms.retry-queue.wms-cincout.orders
			wms.queue.wms-cincout.orders / wms.retry-exchange.wms-cincout.orders retry wms.retry-queue.wms-cincout.orders,wms.main-exchange wms.queue.wms-cincout.orders`,
		PresetTopicTiers: `wms.events wms.events.retry wms.events.dlx / wms.events.dlq wms.orders.retry.30s wms.orders.retry.5m wms.orders.retry.30m wms.orders /
			wms.events orders.* wms.orders,wms.events.dlx wms.events.dlq,wms.events.retry orders.30s wms.orders.retry.30s,wms.events.retry orders.5m
			wms.orders.retry.5m,wms.events.retry orders.30m wms.orders.retry.30m`,
		PresetPerQueue: `x retry.q.orders dlq.q.orders / q.orders.dlq q.orders.retry q.orders / x k q.orders,dlq.q.orders parking q.orders.dlq,
			retry.q.orders retry q.orders.retry`,
		PresetDelayLadder: `x / wms.orders.dlq wms.orders.delay_2s wms.orders.delay_5s wms.orders.delay_15s wms.orders / x k wms.orders`,
		PresetDeadLetter: `x wms.dlx / wms-cincout.orders.dlq wms-cincout.orders.retry wms-cincout.orders / x k wms-cincout.orders,
			wms.dlx wms-cincout.orders.dlq wms-cincout.orders.dlq`,
		PresetNative: `wms.main-exchange / wms.dlq.wms-cincout.orders wms.queue.wms-cincout.orders / wms.main-exchange wms.queue.wms-cincout.orders`,
	} {
		o := Options{Preset: preset, Service: "wms-cincout", Subscription: "orders"}
		if blueprints[preset].bindingKey == "" {
			o.Bindings = []Binding{{Exchange: "x", Key: "k"}}
		}
		p := build(t, o)
		var exchanges, queues, bindings []string
		for _, x := range p.Exchanges {
			exchanges = append(exchanges, x.Name)
		}
		for _, q := range p.Queues {
			queues = append(queues, q.Name)
		}
		for _, b := range p.Bindings {
			bindings = append(bindings, strings.Join(strings.Fields(b.Exchange+" "+b.Key+" "+b.Queue), " "))
		}
		words := func(s string) []string {
			return strings.FieldsFunc(s, func(r rune) bool { return strings.ContainsRune(" ,/\n\t", r) })
		}
		got := slices.Concat(exchanges, queues, words(strings.Join(bindings, ",")))
		slices.Sort(got)
		expected := words(want)
		if slices.Sort(expected); !slices.Equal(got, expected) {
			t.Errorf("%s:\n%s\n%s\n%s", preset, exchanges, queues, strings.Join(bindings, ","))
		}
	}
}

// TestLongestDelays: no delay that can be set overflows.
func TestLongestDelays(t *testing.T) {
	t.Parallel()
	p := must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelay: maxTTL}))(t)
	if got := p.Delays(); !slices.Equal(got, []time.Duration{maxTTL}) || p.DelayAfter(1<<31-1) != maxTTL {
		t.Errorf("%v, %v", got, p.DelayAfter(1<<31-1))
	}
	p = must.Get(Build(Options{Service: "wms-in", Preset: PresetNative, RetryDelays: []time.Duration{4 * time.Hour, 24 * time.Hour}}))(t)
	if got := p.DelayAfter(1); got != 8*time.Hour {
		t.Errorf("%v", got)
	}
}
