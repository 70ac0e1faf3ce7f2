package topologytest

import (
	"testing"
	"time"

	"sidecar/internal/topology"
)

// Retry-After counts in seconds, so that tiers have to be longer than a second for one of them to cover it.
var (
	tiers = []time.Duration{150 * time.Millisecond, time.Second, 1100 * time.Millisecond}
	brief = 150 * time.Millisecond
)

// presets are all of them with short delays.
func presets() map[string]topology.Options {
	const p = "shop"
	two := 2
	four := 4
	bound := func(exchange, key string) []topology.Binding {
		return []topology.Binding{{Exchange: exchange, Key: key}}
	}
	return map[string]topology.Options{
		"fanout":       {Preset: topology.PresetFanout, RetryDelay: brief, MaxRetries: &four},
		"fanout tiers": {Preset: topology.PresetFanout, RetryDelays: tiers, MaxRetries: &four},
		"topic tiers":  {Preset: topology.PresetTopicTiers, RetryDelays: tiers},
		"per queue":    {Preset: topology.PresetPerQueue, RetryDelay: brief, Exchange: p + ".events", Bindings: bound(p+".events", "order.#")},
		"delay ladder": {Preset: topology.PresetDelayLadder, RetryDelays: tiers, Bindings: bound(p+".events", "order.*")},
		"no delays":    {Preset: topology.PresetDelayLadder, RetryDelays: []time.Duration{}, Bindings: bound(p+".events", "order.*")},
		"dead letter": {
			Preset: topology.PresetDeadLetter, RetryDelay: brief, MaxRetries: &two, Queue: p + ".orders", Bindings: bound(p, "order.created"),
			MessageTTL: time.Hour, // long enough for nothing to expire: what it does to retries is what matters
		},
		"no dead letter": {
			Preset: topology.PresetDeadLetter, RetryDelay: brief, MaxRetries: &two, Queue: p + ".orders", Bindings: bound(p, "order.created"),
			NoDeadLetter: true,
		},
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		for name := range presets() {
			t.Run(name+"/"+queueType, func(t *testing.T) {
				t.Parallel()
				o := presets()[name]
				o.QueueType = queueType
				o.Service = "orders-svc"
				if len(o.Bindings) > 0 { // the exchange in the bindings has the prefix, unless it is given
					o.Prefix = "shop"
				}
				plan, err := topology.Build(o)
				if err != nil {
					t.Fatal(err)
				}
				Exercise(t, plan)
			})
		}
	}
}
