package topology

import (
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

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
