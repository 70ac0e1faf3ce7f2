package topologytest

import (
	"cmp"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// examplePlan reads a plan file of the examples, and shortens its delays: waiting for minutes proves nothing more.
func examplePlan(t *testing.T, path string) *topology.Plan {
	t.Helper()
	p := must.Get(topology.ParsePlan(must.Get(os.ReadFile(path))(t), "example", 0))(t)
	for i := range p.Waits {
		w := &p.Waits[i]
		w.Delay = tiers[i]
		for j := range p.Queues {
			if q := &p.Queues[j]; q.Name == w.Queue {
				q.Args = maps.Clone(q.Args)
				q.Args[topology.ArgTTL] = w.Delay.Milliseconds()
			}
		}
	}
	return p
}

// TestExamplePlans: a plan from a file, which no preset builds, needs no line of code anywhere.
func TestExamplePlans(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/topologies/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			Exercise(t, examplePlan(t, file), checksOf(file))
		})
	}
}

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

// seed chooses what a run leaves out. "all" leaves out nothing, as in make soak.
var seed = cmp.Or(os.Getenv("TOPOLOGY_SEED"), strconv.Itoa(rand.IntN(10_000)))

// drawn reports whether a run takes a check: one of share of them.
func drawn(check string, share uint32) bool {
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, seed, check)
	return seed == "all" || h.Sum32()%share == 0
}

func TestMain(m *testing.M) {
	flag.Parse()
	fmt.Printf("replay: TOPOLOGY_SEED=%s go test ./internal/topologytest\n", seed)
	_ = flag.Set("test.parallel", "24") // whatever was given: these tests wait in retry queues and hardly compute
	goleak.VerifyTestMain(m)
}

// consumerTimeout is what the broker grants here instead of its half hour.
const consumerTimeout = 2 * time.Second

// TestConsumerTimeout holds a message longer than the broker waits for a consumer.
//
//	RabbitMQ 3.10, 4.0         the channel is closed (406): the message is delivered again, waits for the answer of the
//	                           attempt under way, and is acked by it without another POST
//	RabbitMQ 4.3, quorum       nothing happens: the consumer has asked for more time
//	RabbitMQ 4.3, classic      nothing happens: the broker has no timeout
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).ConsumerTimeout(int(consumerTimeout.Milliseconds()), 500)
	version := brokertest.Version(t)
	cause := ""
	if strings.HasPrefix(version, "3.") || strings.HasPrefix(version, "4.0.") {
		cause = "channel"
	}
	t.Run("all", func(t *testing.T) {
		for _, queueType := range []string{"classic", "quorum"} {
			t.Run(queueType, func(t *testing.T) {
				t.Parallel()
				overdue(t, build(t, topology.Options{Service: queueType + "-late", QueueType: queueType, RetryDelay: brief}), cause)
			})
		}
	})
}

// overdue: cause is why the session has to end while the message is held, empty when it must not.
func overdue(t *testing.T, plan *topology.Plan, cause string) {
	r := begin(t, plan)
	gate := make(chan struct{})
	ids := named("overdue", 3)
	for _, id := range ids {
		r.app.On(id, apptest.Held(gate, status(http.StatusOK)), status(http.StatusOK))
	}
	r.send(t, ids...)
	const reconnects = "sidecar_amqp_reconnects_total"
	if cause == "" {
		time.Sleep(3 * consumerTimeout) // what does not happen cannot be waited for
	} else {
		brokertest.Eventually(t, patience, "the broker gives up on the consumer", func() bool {
			return brokertest.Metric(t, r.registry, reconnects, "cause", cause) > 0
		})
	}
	close(gate)
	r.acked(t, ids...)
	r.stopsEmpty(t)
	for _, id := range ids {
		if r.receipts(t, id, 0); len(r.log.finals(id)) != 1 {
			t.Errorf("%s: acked %d times", id, len(r.log.finals(id)))
		}
	}
	if n := brokertest.Metric(t, r.registry, reconnects); cause == "" && n != 0 {
		t.Errorf("%v new sessions on a broker that waits for ever", n)
	}
}
