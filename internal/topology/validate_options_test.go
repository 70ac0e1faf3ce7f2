package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestCheckBlames: of a name that is not set, the variable is named that has to change. Build refuses the same.
func TestCheckBlames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 250)
	bound := []Binding{{Exchange: "e", Key: "k"}}
	for _, c := range []struct {
		name   string
		o      Options
		blamed []string // the first variables of all mistakes, sorted, each once
		says   string   // of the first mistake
	}{
		{"nothing", Options{Service: "x-y"}, nil, ""},
		{"the longest name", Options{Service: "w-" + strings.Repeat("n", 236)}, nil, ""},
		{"one more", Options{Service: "w-" + strings.Repeat("n", 237)}, []string{"SIDECAR_SERVICE"}, "has 256 bytes and may have 255"},
		{"a tier", Options{Service: "w-" + strings.Repeat("n", 230), RetryDelays: []time.Duration{time.Second, 11*time.Minute + 22333*time.Millisecond}},
			[]string{"SIDECAR_SERVICE"}, "has 257 bytes"},
		{"most of it is the prefix", Options{Service: "x", Prefix: long}, []string{"SIDECAR_PREFIX"}, " bytes and may have 255"},
		{"most of it is the service", Options{Service: "x-" + long, Prefix: "prefix"}, []string{"SIDECAR_SERVICE"}, " bytes and may have 255"},
		{"the queue", Options{Preset: PresetPerQueue, Service: "x", Queue: long, Bindings: bound}, []string{"SIDECAR_QUEUE"}, " bytes and may have 255"},
		{"the exchange", Options{Preset: PresetTopicTiers, Service: "x", Exchange: long}, []string{"SIDECAR_EXCHANGE"}, " bytes and may have 255"},
		{"the retry queue", Options{Service: "x", RetryQueue: strings.Repeat("n", 253), RetryDelays: []time.Duration{time.Second}},
			[]string{"SIDECAR_RETRY_QUEUE"}, "has 256 bytes"},
		{"a routing key", Options{Preset: PresetTopicTiers, Service: "x-" + long, Queue: "q", RetryQueue: "r"}, []string{"SIDECAR_SERVICE"}, "routing key"},
		{"an exchange that is not there", Options{Preset: PresetDelayLadder, Service: "x", Prefix: long, Queue: "q", Bindings: bound}, nil, ""},

		{"reserved by the service", Options{Service: "amq-x"}, []string{"SIDECAR_SERVICE"}, "or set SIDECAR_PREFIX or SIDECAR_EXCHANGE"},
		{"reserved by the prefix", Options{Service: "x", Prefix: "amq"}, []string{"SIDECAR_PREFIX"}, "reserved by the broker"},
		{"reserved by the exchange", Options{Preset: PresetTopicTiers, Service: "x", Exchange: "amq.topic"}, []string{"SIDECAR_EXCHANGE"}, "reserved by the broker"},
		{"nothing is named after the exchange", Options{Preset: PresetTopicTiers, Service: "x", Exchange: "amq.topic", RetryExchange: "r", DLX: "d", DLQ: "q"}, nil, ""},
		{"another exchange of the broker", Options{Preset: PresetTopicTiers, Service: "x", Exchange: "amq.direct", RetryExchange: "r", DLX: "d", DLQ: "q", Bindings: bound},
			[]string{"SIDECAR_EXCHANGE"}, "of type direct"},
		{"nothing is named after the prefix", Options{Preset: PresetPerQueue, Service: "amq-x", Bindings: bound}, nil, ""},
		{"a reserved binding", Options{Service: "x", Bindings: []Binding{{Exchange: "amq.mine"}}}, []string{"SIDECAR_BINDINGS"}, "reserved by the broker"},

		{"names of the preset that clash", Options{Preset: PresetTopicTiers, Service: "x-events.dlq"}, []string{"SIDECAR_SERVICE"}, " or SIDECAR_DLQ"},
		{"the one that was given", Options{Service: "x", Queue: "default.dlq.x"}, []string{"SIDECAR_QUEUE"}, "has two roles"},
		{"the retry queue beside tiers", Options{Service: "x", DLQ: "default.retry-queue.x", RetryDelays: []time.Duration{time.Second}}, []string{"SIDECAR_DLQ"}, "has two roles"},
		{"no retry queue beside tiers", Options{Preset: PresetDelayLadder, Service: "x-y", DLQ: "x.y.delay", Bindings: bound}, nil, ""},
		{"order and several consumers", Options{Service: "x", SingleActive: true, QueueArguments: amqp.Table{ArgSingleConsumer: false}},
			[]string{"SIDECAR_QUEUE_ARGUMENTS"}, "out of order"},
		{"a name that is not UTF-8", Options{Service: "x", Queue: "a\xff"}, []string{"SIDECAR_QUEUE"}, "UTF-8"},
		{"an exchange twice", Options{Service: "x", Exchange: "e", RetryExchange: "e"}, []string{"SIDECAR_RETRY_EXCHANGE"},
			`exchange "e" has two roles`},
		{"listening to retries", Options{Service: "x-y", Preset: PresetTopicTiers, Bindings: []Binding{{Exchange: "x.events.retry", Key: "#"}}},
			[]string{"SIDECAR_BINDINGS"}, `exchange "x.events.retry" carries retries`},
		{"a pattern for a queue", Options{Service: "x", Preset: PresetDeadLetter, Queue: "a.*", Bindings: bound}, []string{"SIDECAR_QUEUE"}, `the key "a.*.dlq" is a pattern`},
		{"a pattern for a dlq", Options{Service: "x", Preset: PresetDeadLetter, Queue: "q", DLQ: "#.d", Bindings: bound}, []string{"SIDECAR_DLQ"}, `the key "#.d" is a pattern`},
		{"the broker's exchange of another type", Options{Service: "x", Exchange: "amq.topic"}, []string{"SIDECAR_EXCHANGE"}, "broker's own and of type topic"},
		{"direct without bindings", Options{Service: "x", ExchangeType: "direct"}, []string{"SIDECAR_EXCHANGE_TYPE"}, "needs SIDECAR_BINDINGS"},
		{"no tiers at all", Options{Service: "x", RetryDelays: []time.Duration{}}, []string{"SIDECAR_RETRY_DELAYS"}, "none is for SIDECAR_TOPOLOGY=delay-ladder only"},
		{"message ttl", Options{Service: "x", MessageTTL: time.Second}, []string{"SIDECAR_MESSAGE_TTL"}, "is for SIDECAR_TOPOLOGY=dead-letter only"},
		{"nothing behind the hyphen", Options{Service: "x-", Preset: PresetTopicTiers}, []string{"SIDECAR_SERVICE"}, "nothing does"},
		{"one delay in a ladder", Options{Service: "x", Preset: PresetDelayLadder, Bindings: bound, RetryDelay: time.Second}, []string{"SIDECAR_RETRY_DELAY"}, "use SIDECAR_RETRY_DELAYS"},
		{"retries without delays", Options{Service: "x", Preset: PresetDelayLadder, Bindings: bound, RetryDelays: []time.Duration{}, MaxRetries: new(1)},
			[]string{"SIDECAR_MAX_RETRIES"}, "no queue to wait in"},
		{"a dlq that is disabled", Options{Service: "x", Preset: PresetDeadLetter, Queue: "q", Bindings: bound, NoDeadLetter: true, DLQ: "d"},
			[]string{"SIDECAR_DEAD_LETTER"}, "what there is not"},
		{"several", Options{Service: "x", Preset: PresetDeadLetter, RetryDelays: []time.Duration{}},
			[]string{"SIDECAR_BINDINGS", "SIDECAR_QUEUE", "SIDECAR_RETRY_DELAYS"}, "required for"},
		{"an unknown preset says nothing of the rest", Options{Preset: "fan", MaxRetries: new(-1)}, []string{"SIDECAR_TOPOLOGY"}, "not a topology"},
	} {
		t.Run(c.name, func(t *testing.T) {
			mistakes := ValidateOptions(c.o)
			var blamed []string
			for _, m := range mistakes {
				blamed = append(blamed, m.Variables[0])
			}
			slices.Sort(blamed)
			if blamed = slices.Compact(blamed); !slices.Equal(blamed, c.blamed) || len(mistakes) > 0 && !strings.Contains(mistakes[0].Reason, c.says) {
				t.Errorf("%+v, want %v and %q", mistakes, c.blamed, c.says)
			}
			p, err := Build(c.o)
			for _, m := range mistakes {
				if p != nil || err == nil || !strings.Contains(err.Error(), m.Variables[0]+": "+m.Reason) {
					t.Errorf("%v does not say %+v", err, m)
				}
			}
		})
	}
}

// FuzzCheck: whatever is set, each mistake names a variable, and there is a plan without mistakes.
func FuzzCheck(f *testing.F) {
	presets := slices.Sorted(slices.Values([]string{PresetFanout, PresetTopicTiers, PresetPerQueue, PresetDelayLadder, PresetDeadLetter, PresetNative}))
	for i := range presets {
		f.Add(uint8(i), uint8(0), "wms-cincout", "", "", "q", "", "", "", "", "e:k", 0, 0)
		f.Add(uint8(i), uint8(0xff), "x-events.dlq", "x", "x.events", "a.*", "r", "w", "d", "p", "x.events:#,r:k", 1, 3)
		f.Add(uint8(i), uint8(1), "amq-x", "", "amq.topic", "", "r", "", "d", "p", "amq.direct:k", 0, 2)
	}
	f.Fuzz(func(t *testing.T, preset, flags uint8, service, prefix, exchange, queue, retryExchange, retryQueue, dlx, dlq, bindings string, delay, tiers int) {
		types := append([]string{""}, exchangeTypes...)
		o := Options{
			Preset: presets[int(preset)%len(presets)], Service: service, Prefix: prefix, Exchange: exchange, Queue: queue,
			RetryExchange: retryExchange, RetryQueue: retryQueue, DLX: dlx, DLQ: dlq, RetryDelay: time.Duration(delay),
			ExchangeType: types[int(flags&7)%len(types)], NoDeadLetter: flags&8 != 0, QueueType: []string{"", TypeQuorum}[flags>>4&1],
		}
		if flags&0x20 != 0 {
			o.MessageTTL = time.Second
		}
		if flags&0x40 != 0 {
			o.RetryDelays = []time.Duration{}
			for i := range tiers & 7 {
				o.RetryDelays = append(o.RetryDelays, time.Duration(i+1)*1500*time.Millisecond)
			}
		}
		if flags&0x80 != 0 {
			n := tiers
			o.MaxRetries = &n
		}
		for b := range strings.SplitSeq(bindings, ",") {
			if exchange, key, found := strings.Cut(b, ":"); found {
				o.Bindings = append(o.Bindings, Binding{Exchange: exchange, Key: key})
			}
		}
		mistakes := ValidateOptions(o)
		for _, m := range mistakes {
			if len(m.Variables) == 0 || slices.Contains(m.Variables, "") || m.Reason == "" || strings.Contains(m.Reason, "\n") {
				t.Fatalf("%+v", m)
			}
		}
		if p, err := Build(o); (err == nil) != (len(mistakes) == 0) || err == nil && p.Validate() != nil {
			t.Fatalf("%+v: %+v, and yet %v", o, mistakes, err)
		}
	})
}

func fromFile(p *Plan) *Plan {
	p.FromFile = true
	return p
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	shapes := otherShapes(t)
	for _, c := range []struct {
		name string
		p    *Plan
		want []string
	}{
		{"quorum", build(t, Options{Service: "wms-cincout", QueueType: "quorum"}), nil},
		{"classic", build(t, Options{Service: "wms-cincout"}), []string{"classic queue"}},
		{"classic, from a file", fromFile(build(t, Options{Service: "wms-cincout"})), []string{"quorum queues lose none"}},
		{"shared way back", shapes["topic-tiers"], []string{"classic queue", "retries return through exchange freeflow.events"}},
		{"a queue of its own behind a shared fanout", build(t, Options{Preset: PresetTopicTiers, Service: "x-y", DLQ: "y.dlq", QueueType: "quorum"}),
			[]string{"retries return", "x.events.dlx copies what any service parks"}},
		{"messages expire", shapes["dead-letter disabled"], []string{"classic queue", `queue "orders": x-message-ttl: messages leave the queue after 300000 ms`, "SIDECAR_DEAD_LETTER: a message that has used up its retries is discarded"}},
		{"an exchange that nothing is bound to", build(t, Options{Service: "x-y", Exchange: "e", ExchangeType: "topic", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "others", Key: "k"}}}),
			[]string{"SIDECAR_EXCHANGE_TYPE=topic is not used: SIDECAR_BINDINGS does not name exchange e", "SIDECAR_EXCHANGE=e is not used"}},
		{"an exchange that names others", build(t, Options{Preset: PresetDeadLetter, Service: "x-y", Queue: "q", Exchange: "e", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "others", Key: "k"}}}), nil},
		{"the second main exchange", build(t, Options{Preset: PresetPerQueue, Service: "x-y", ExchangeType: "direct", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "domain.commands", Key: "k"}}}), nil},
		{"no hyphen", build(t, Options{Service: "noprefix", QueueType: "quorum"}), []string{`SIDECAR_SERVICE: "noprefix" has no hyphen`}},
		{"no hyphen, and a prefix", build(t, Options{Service: "noprefix", Prefix: "p", QueueType: "quorum"}), nil},
		{"no hyphen, and an exchange", build(t, Options{Service: "noprefix", Exchange: "e", QueueType: "quorum"}), nil},
		{"no hyphen where nothing is named after the prefix", build(t, Options{Preset: PresetPerQueue, Service: "noprefix", QueueType: "quorum",
			Bindings: []Binding{{Exchange: "domain.events", Key: "k"}}}), nil},
		{"a prefix that is the default", build(t, Options{Service: "default-x", QueueType: "quorum"}), nil},
	} {
		got := c.p.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: %d warnings, want %d: %v", c.name, len(got), len(c.want), got)
			continue
		}
		for i, w := range c.want {
			if !strings.Contains(got[i], w) {
				t.Errorf("%s: %q does not hold %q", c.name, got[i], w)
			}
		}
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

// TestMayRouteWhereNoKeyDecides: a message to a headers exchange may reach the queue.
func TestMayRouteWhereNoKeyDecides(t *testing.T) {
	t.Parallel()
	p := &Plan{Exchanges: []Exchange{{Name: "h", Type: "headers"}}, Bindings: []Binding{{Exchange: "h", Queue: "q", Args: amqp.Table{"kind": "a"}}}}
	for exchange, want := range map[string]bool{"h": true, "x": false, "": false} {
		if got := p.MayRoute(exchange, "k"); got != want {
			t.Errorf("exchange %q: %v", exchange, got)
		}
	}
}
