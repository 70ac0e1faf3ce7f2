package topology

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// shown are the services that show the presets in docs/topologies and in examples/topologies.
var shown = map[string]Options{
	PresetFanout:     {Service: "wms-cincout"},
	PresetTopicTiers: {Service: "freeflow-user"},
	PresetPerQueue: {Service: "upload.commands", Bindings: []Binding{
		{Exchange: "domain.commands", Key: "commands.upload.#"}, {Exchange: "domain.commands", Key: "commands.file.reprocess.*"},
	}},
	PresetDelayLadder: {Service: "demo-order_processor", Bindings: []Binding{{Exchange: "demo.events", Key: "order.process"}}},
	PresetDeadLetter: {
		Service: "order-service", Exchange: "foodies", Queue: "order-service.order-placed",
		Bindings: []Binding{{Exchange: "foodies", Key: "order.placed"}},
	},
	PresetNative: {Service: "shop-billing"},
}

// show builds the plan of a preset's service, with what set changes.
func show(t *testing.T, preset string, set func(*Options)) *Plan {
	t.Helper()
	o := shown[preset]
	o.Preset = preset
	if set != nil {
		set(&o)
	}
	return build(t, o)
}

// goldens are the plans that are kept to the letter: every preset as it is by default, in the other type of queue, and with
// what only it can do. Other services declare the same objects, so with one argument more or less one
// side cannot start.
func goldens(t *testing.T) map[string]*Plan {
	plans := map[string]*Plan{
		"fanout-tiers": show(t, PresetFanout, func(o *Options) { o.RetryDelays = []time.Duration{30 * time.Second, 5 * time.Minute} }),
		"fanout-foreign": show(t, PresetFanout, func(o *Options) {
			o.DLX, o.Exchange, o.ExchangeType = "wms.dlx", "amq.topic", "topic"
			o.Bindings = []Binding{{Exchange: "amq.topic", Key: "a.#"}, {Exchange: "foreign", Key: `"k"`}}
		}),
		"per-queue-tiers":      show(t, PresetPerQueue, func(o *Options) { o.RetryDelays = []time.Duration{15 * time.Second, time.Minute} }),
		"delay-ladder-none":    show(t, PresetDelayLadder, func(o *Options) { o.RetryDelays = []time.Duration{} }),
		"dead-letter-ttl":      show(t, PresetDeadLetter, func(o *Options) { o.MessageTTL = 5 * time.Minute }),
		"dead-letter-disabled": show(t, PresetDeadLetter, func(o *Options) { o.NoDeadLetter = true }),
		"headers":              examplePlan(t, "headers/billing.json"),
		"native-rising":        show(t, PresetNative, func(o *Options) { o.RetryDelays = []time.Duration{5 * time.Second, 5 * time.Minute} }),
	}
	for preset := range shown {
		plans[preset] = show(t, preset, nil)
		if preset == PresetNative {
			continue // only a quorum queue delays messages
		}
		other := TypeQuorum
		if plans[preset].Quorum {
			other = TypeClassic
		}
		plans[preset+"-"+other] = show(t, preset, func(o *Options) { o.QueueType = other })
	}
	return plans
}

// TestOwns: a message that was parked elsewhere belongs to another service, whatever its queue is called.
func TestOwns(t *testing.T) {
	t.Parallel()
	p := *show(t, PresetFanout, nil)
	p.Redrive.Exchange = "orders"
	for queue, owned := range map[string]bool{p.Queue: true, "": true, "orders": false} {
		if p.Owns(queue) != owned {
			t.Errorf("messages of %s", queue)
		}
	}
}

// TestPresetsToTheLetter compares every name, argument and route of systems that exist: a service that declares the same
// objects must not see a difference.
func TestPresetsToTheLetter(t *testing.T) {
	t.Parallel()
	plans := goldens(t)
	for preset, o := range shown {
		o.Preset, o.Subscription, o.Queue = preset, "orders", ""
		plans[preset+"-subscription"] = build(t, o)
	}
	for name, p := range plans {
		golden(t, "plans/"+name+".json", string(must.Get(p.JSON())(t)))
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	plans := goldens(t)
	for name, p := range plans {
		definitions := must.Get(p.Definitions("/"))(t)
		golden(t, name+".txt", p.Text())
		golden(t, name+".mmd", Mermaid(p))
		golden(t, name+".json", string(definitions))
	}
	files := must.Get(os.ReadDir("testdata"))(t)
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), filepath.Ext(f.Name())); !f.IsDir() && plans[name] == nil { // fuzz is one
			t.Errorf("testdata/%s belongs to no plan", f.Name())
		}
	}
	for name, p := range otherShapes(t) {
		if p.Text() == "" || !strings.HasPrefix(Mermaid(p), "flowchart") {
			t.Errorf("%s cannot be drawn", name)
		}
	}
}

// examplePlan reads a plan of examples/topologies.
func examplePlan(t *testing.T, name string) *Plan {
	t.Helper()
	raw := must.Get(os.ReadFile(filepath.Join("../../examples/topologies", name)))(t)
	return must.Get(ParsePlan(raw, "example", 0))(t)
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want := must.Get(os.ReadFile(path))(t)
	if got != string(want) {
		t.Errorf("%s differs (go test -update rewrites it):\n%s", name, got)
	}
}
