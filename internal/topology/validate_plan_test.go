package topology

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestValidateRefuses breaks one rule at a time in a plan that is fine.
func TestValidateRefuses(t *testing.T) {
	t.Parallel()
	const own, wait, dlq = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
	set := func(queue, arg string, v any) func(*Plan) {
		return func(p *Plan) {
			q := p.queue(queue)
			if q.Args = maps.Clone(q.Args); q.Args == nil {
				q.Args = amqp.Table{}
			}
			if q.Args[arg] = v; v == nil {
				delete(q.Args, arg)
			}
		}
	}
	quorum := func(change func(*Plan)) func(*Plan) {
		return func(p *Plan) {
			*p = *build(t, Options{Service: "wms-cincout", QueueType: "quorum"})
			change(p)
		}
	}
	for _, c := range []struct {
		name   string
		damage func(*Plan)
		want   string
	}{
		{"exchange without a name", func(p *Plan) { p.Exchanges[0].Name = "" }, "no name"},
		{"dead letters into nothing", set(own, ArgDLKey, "other"), "dead letters would be lost"},
		{"wait queue dead-letters into nothing", set(wait, ArgDLKey, "other"), "dead letters would be lost"},
		{"two paths by reject", func(p *Plan) { p.Waits = append(p.Waits, p.Waits[0]) }, "one dead-letter route"},
		{"reject without a dead-letter route", set(own, ArgDLX, nil), "does not dead-letter to"},
		{"reject into two queues", func(p *Plan) {
			p.Bindings = append(p.Bindings, Binding{Exchange: "wms.retry-exchange.wms-cincout", Key: "retry", Queue: dlq})
		}, "alone"},
		{"wait queue without ttl", set(wait, ArgTTL, nil), "must be the number 5000 and is not set"},
		{"wait path without a route", func(p *Plan) { p.Waits[0].Route = Route{Queue: wait} }, `exchange "" with key "" does not reach`},
		{"wait queue leads elsewhere", set(wait, ArgDLKey, dlq), "does not lead back"},
		{"wait queue without a way back", set(wait, ArgDLX, nil), "does not lead back"},
		{"parks in the service's queue", func(p *Plan) { p.Park.Queue = own }, "use dlq"},
		{"park key is a pattern", func(p *Plan) {
			p.Exchanges = append(p.Exchanges, Exchange{Name: "x", Type: "topic"})
			p.Bindings = append(p.Bindings, Binding{Exchange: "x", Key: "a.*", Queue: dlq})
			p.Park = Route{Exchange: "x", Key: "a.*", Queue: dlq}
		}, "is a pattern"},
		{"parked messages expire", set(dlq, ArgTTL, int64(1)), "parked messages are dropped after 1 ms"},
		{"the dead-letter queue expires", set(dlq, "x-expires", int64(1)), "deletes the queue with its messages"},
		{"service queue expires", set(own, "x-expires", int64(1)), "deletes the queue with its messages"},
		{"a stream", set(own, ArgType, "stream"), "not taken out one by one"},
		{"an argument of streams", set(own, "x-max-age", "1D"), "not an argument of classic or quorum queues"},
		{"a misspelled argument", set(own, "x-max-lengths", int64(1)), "not an argument of classic or quorum queues"},
		{"quorum with limit -1", quorum(set(own, ArgDeliveryLimit, int64(-1))), "already reached"},
		{"quorum with a limit that a lost connection reaches", quorum(set(own, ArgDeliveryLimit, int64(2))), "lost connections are enough"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := build(t, Options{Service: "wms-cincout"})
			c.damage(p)
			if err := p.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
}

// otherShapes are plans that differ most from the default one.
func otherShapes(t testing.TB) map[string]*Plan {
	return map[string]*Plan{
		"topic-tiers": build(t, Options{
			Preset: PresetTopicTiers, Service: "freeflow-user", RetryDelays: []time.Duration{30 * time.Second, 5 * time.Minute},
		}),
		"per-queue": build(t, Options{
			Preset: PresetPerQueue, Service: "validator", Bindings: []Binding{{Exchange: "domain.events", Key: "files.uploaded.*"}},
		}),
		"straight to the dlq": build(t, Options{
			Preset: PresetDelayLadder, Service: "demo-order", Bindings: []Binding{{Exchange: "demo.events", Key: "order.*"}},
			RetryDelays: []time.Duration{},
		}),
		"dead-letter disabled": build(t, Options{
			Preset: PresetDeadLetter, Service: "shop-orders", Queue: "orders", Bindings: []Binding{{Exchange: "shop", Key: "order.*"}},
			MessageTTL: 5 * time.Minute, NoDeadLetter: true,
		}),
	}
}

func TestReach(t *testing.T) {
	t.Parallel()
	p := &Plan{
		Queues: []Queue{{Name: "q"}, {Name: "r"}},
		Exchanges: []Exchange{
			{Name: "t", Type: "topic"}, {Name: "d", Type: "direct"}, {Name: "f", Type: "fanout"}, {Name: "h", Type: "headers"}, {Name: "foreign"},
		},
	}
	for _, c := range []struct {
		exchange, pattern, key string
		want                   bool
	}{
		{"", "", "q", true}, {"", "", "absent", false},
		{"t", "a.*", "a.b", true}, {"t", "a.*", "a.b.c", false}, {"t", "a.*", "a", false},
		{"t", "#", "", true}, {"t", "#", "a.b", true}, {"t", "a.#", "a", true}, {"t", "a.#", "a.b.c", true}, {"t", "a.#.z", "a.b.c.z", true},
		{"t", "a.#.z", "a.b.c", false}, {"t", "#.b.#.c", "a.b.x.b.c", true}, {"t", "a.#.*", "a", false},
		{"t", strings.Repeat("#.", 120) + "z", strings.Repeat("a.", 120) + "y", false}, {"t", "", "", true}, {"t", "a", "b", false},
		{"d", "k", "k", true}, {"d", "k", "l", false}, {"f", "k", "l", true}, {"h", "", "x", true},
		{"foreign", "", "", false}, {"unknown", "", "", false},
	} {
		b := Binding{Exchange: c.exchange, Key: c.pattern, Queue: "q"}
		p.Bindings = []Binding{b, b}
		want := []string{"q"}
		if !c.want {
			want = nil
		}
		if got := p.reach(c.exchange, c.key); !slices.Equal(got, want) {
			t.Errorf("%+v: reaches %v", c, got)
		}
		if got := p.MayRoute(c.exchange, c.key); got != (c.want || c.exchange == "foreign") {
			t.Errorf("%+v: may be routed: %v", c, got)
		}
	}
}

// TestMayRouteWhereNoKeyDecides: to a headers exchange, and to one that divides messages by their keys or properties.
func TestMayRouteWhereNoKeyDecides(t *testing.T) {
	t.Parallel()
	p := &Plan{Exchanges: []Exchange{{Name: "h", Type: "headers"}, {Name: "hash", Type: TypeHash}}, Bindings: []Binding{
		{Exchange: "h", Queue: "hash", Args: amqp.Table{"kind": "a"}, Kind: "exchange"}, {Exchange: "hash", Key: "1", Queue: "q"},
	}}
	for exchange, want := range map[string]bool{"h": true, "hash": true, "x": false, "": false} {
		if got := p.MayRoute(exchange, "k"); got != want {
			t.Errorf("exchange %q: %v", exchange, got)
		}
	}
}

// TestValidateSaysWhere: every refusal begins with the JSON path of what is wrong.
func TestValidateSaysWhere(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	p.Queue, p.MaxRetries = "x", -1
	p.Exchanges[0].Type, p.Bindings[0].Exchange, p.Waits[0].Key = "x", "", "x"
	p.Queues[1].Args = amqp.Table{"a b": int64(1)}
	want := []string{
		`$.exchanges[0].type: exchange "wms.main-exchange" has type "x"`,
		`$.queue: the service's queue "x" is not in the plan`,
		`$.max_retries: max retries is -1`,
		`$.bindings[0].exchange: queue "wms.queue.wms-cincout" cannot be bound to the default exchange`,
		`$.waits[0]: wait path 5s: exchange "wms.retry-exchange.wms-cincout" with key "x" does not reach`,
		`$.queues[1].arguments.x-message-ttl: wait path 5s: x-message-ttl of queue "wms.retry-queue.wms-cincout" must be`,
		`$.queues[1].arguments["a b"]: queue "wms.retry-queue.wms-cincout": a b=1: not an argument of classic or quorum queues`,
	}
	got := strings.Split(p.Validate().Error(), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d problems, want %d:\n%s", len(got), len(want), strings.Join(got, "\n"))
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("%s\nwant %s", got[i], w)
		}
	}
}
