package topologytest

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
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
		"native":        {Preset: topology.PresetNative, RetryDelay: brief, MaxRetries: &four},
		"native rising": {Preset: topology.PresetNative, RetryDelays: []time.Duration{brief, 2 * brief}, MaxRetries: &four},
	}
}

// version is that of the broker that the tests talk to.
func version(t *testing.T) (major, minor int) {
	t.Helper()
	// A virtual host of this test would be that of all its parts.
	v, _ := brokertest.Conn(t, os.Getenv("AMQP_URL")).Properties["version"].(string)
	must.Get(fmt.Sscanf(v, "%d.%d", &major, &minor))(t)
	return major, minor
}

// TestTooOld: a broker that ignores the delays gets nothing declared, and nothing is taken from it, in every mode. A
// newer one is used, so there is nothing to see there.
func TestTooOld(t *testing.T) {
	t.Parallel()
	plan, url := build(t, topology.Options{Preset: topology.PresetNative, RetryDelay: brief}), brokertest.URL(t)
	if major, minor := version(t); major > 4 || major == 4 && minor >= 3 {
		declareTopology(t, url, plan)
		return
	}
	for n, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify, topology.ModeNone} {
		r := startIn(t, plan, mode)
		brokertest.Eventually(t, patience, "the broker is too old", r.brokenTopology)
		if hold := r.flow.Holds()[0].Detail; !strings.Contains(hold, "RabbitMQ 4.3") {
			t.Errorf("%s: %s", mode, hold)
		}
		if n == 0 {
			for _, q := range plan.Queues {
				if brokertest.Ready(t, url, q.Name) >= 0 {
					t.Errorf("%s was declared", q.Name)
				}
			}
			brokertest.Queue(t, url, plan.Queue, plan.OwnQueue().Args) // as this broker takes it, and ignores it
		}
		r.consumesNothing(t)
		r.stop()
	}
}

// structures are one plan of each structure: how a retry leaves (a reject, a publish, a delay of the queue itself), whether
// it waits in one queue or in tiers, how it returns, and how a message is parked.
var structures = []string{
	"fanout/classic", "fanout/quorum", "topic tiers/classic", "delay ladder/quorum", "no delays/classic", "dead letter/classic",
	"no dead letter/classic", "native/quorum",
}

// checksOf returns which checks a run makes with a plan: all with one plan of each structure; with the others every
// attempt, a park and a redrive, and of the remaining checks those that the seed draws.
func checksOf(plan string) func(check string) bool {
	whole := slices.Contains(structures, plan)
	return func(check string) bool {
		return whole || check == "every attempt" || check == "moved back by hand" || drawn(plan+check, 8)
	}
}

func TestPresets(t *testing.T) {
	t.Parallel()
	for _, queueType := range []string{"classic", "quorum"} {
		for name, preset := range presets() {
			if preset.Preset == topology.PresetNative && queueType == "classic" {
				continue // only a quorum queue delays messages
			}
			t.Run(name+"/"+queueType, func(t *testing.T) {
				t.Parallel()
				o := presets()[name]
				o.QueueType = queueType
				if len(o.Bindings) > 0 { // the exchange in the bindings has the prefix, unless it is given
					o.Prefix = "shop"
				}
				Exercise(t, build(t, o), checksOf(name+"/"+queueType))
			})
		}
	}
}
