package topology

import (
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// TestPresetsFollowTheirOptions: what is set changes what is made from it, and nothing else. TestPresetsToTheLetter has
// the types of queues, tiers and what there can be none of.
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

		{"two main exchanges", perQueue, func(o *Options) {
			o.Bindings = []Binding{{Exchange: "domain.events", Key: "a"}, {Exchange: "domain.commands", Key: "b"}, {Exchange: "other", Key: "c"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) + exchange(p, 2) }, "domain.events topicdomain.commands topicother "},
		{"one when it is named", perQueue, func(o *Options) {
			o.Exchange, o.Bindings = "e", []Binding{{Exchange: "e", Key: "a"}, {Exchange: "domain.commands", Key: "b"}}
		}, func(p *Plan) any { return exchange(p, 0) + exchange(p, 1) }, "e topicdomain.commands "},
		{"names made from the queue", perQueue, func(o *Options) { o.Queue = "z" }, func(p *Plan) any { return queues(p) }, []string{"z.dlq", "z.retry", "z"}},

		{"delays are named in seconds", ladder, func(o *Options) { o.RetryDelays = []time.Duration{1500 * time.Millisecond, 5 * time.Minute} },
			func(p *Plan) any { return p.Waits[0].Queue + " " + p.Waits[1].Queue }, "x.y.delay_1.5s x.y.delay_300s"},
		{"an exchange before the delays", ladder, func(o *Options) { o.RetryExchange, o.RetryQueue = "r", "w" },
			func(p *Plan) any { return p.Waits[0].Route }, Route{"r", "w_2s", "w_2s"}},
		{"an exchange before the dead-letter queue", ladder, func(o *Options) { o.DLX = "d" }, func(p *Plan) any {
			dlx, _ := p.queue("x.y").Args[ArgDLX].(string)
			key, _ := p.queue("x.y").Args[ArgDLKey].(string)
			return []any{dlx, key, p.Park}
		}, []any{"d", "x.y.dlq", Route{"d", "x.y.dlq", "x.y.dlq"}}},

		{"tiers without a plain retry queue", deadLetter, func(o *Options) { o.RetryDelays = []time.Duration{time.Second} },
			func(p *Plan) any { return queues(p) }, []string{"q.dlq", "q.retry.1s", "q"}},
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
