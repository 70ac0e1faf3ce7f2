package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"sidecar/internal/retry"
	"sidecar/internal/sim/model"
	"sidecar/internal/topology"
)

// settings are all that a seed decides before the run, except for what the scheduler decides: see world.
type settings struct {
	seed        uint64
	preset      string
	version     model.Version
	plan        *topology.Plan
	mode        topology.Mode
	concurrency int
	prefetch    int
	gather      int           // messages of a POST at most
	wait        time.Duration // for more of them
	latency     time.Duration
	confirm     time.Duration
	messages    []*parcel
	faults      []*fault
	policy      retry.Policy
}

// String says what a failing seed was about.
func (s *settings) String() string {
	return fmt.Sprintf("%s quorum=%t on %s, mode %s, concurrency %d, prefetch %d, batches of %d, retries %d, latency %v, %d messages, %d faults",
		s.preset, s.plan.Quorum, s.version, s.mode, s.concurrency, s.prefetch, s.gather, s.plan.MaxRetries, s.latency, len(s.messages), len(s.faults))
}

func one[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func between(r *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(r.Int64N(int64(high-low)+1))
}

// chance is true in n of 100 cases.
func chance(r *rand.Rand, n int) bool { return r.IntN(100) < n }

// draw makes the settings of a seed.
func draw(seed uint64) *settings {
	r := rand.New(rand.NewPCG(seed, 0))
	s := &settings{
		seed: seed, version: one(r, model.Versions...), mode: one(r, topology.ModeDeclare, topology.ModeDeclare, topology.ModeVerify, topology.ModeNone),
		concurrency: 1 + r.IntN(6), policy: retry.Policy{
			RequeueMin: between(r, retry.MinRequeueDelay, time.Second), RequeueMax: between(r, time.Second, 3*time.Second),
		},
	}
	s.policy.ParkOn = []int{422}
	s.prefetch = s.concurrency + r.IntN(10)
	if chance(r, 70) {
		s.latency, s.confirm = between(r, 0, 30*time.Millisecond), between(r, 0, 50*time.Millisecond)
	}
	if s.preset, s.plan = drawPlan(r); s.plan.DelaysItself() {
		s.version = model.V43 // older ones are refused
	}
	switch s.mode { // as in app
	case topology.ModeVerify:
		s.plan = s.plan.WithoutReject()
	case topology.ModeNone:
		s.plan = s.plan.Cautious()
	}
	fifo := chance(r, 5) // the only order that is promised
	if fifo {
		s.concurrency, s.prefetch = 1, 1
	}
	s.gather, s.wait = drawGather(rand.New(rand.NewPCG(seed, 2)), fifo)
	for i := range 6 + r.IntN(22) {
		m := drawParcel(r, i, s.plan.MaxRetries)
		if fifo {
			m.steps = []step{{status: 200, takes: m.steps[0].takes}}
		}
		s.messages = append(s.messages, m)
	}
	if !fifo && !chance(r, 25) {
		s.faults = drawFaults(r, len(s.messages))
	}
	return s
}

// drawGather has a source of its own, so that seeds are what they were without batches.
func drawGather(r *rand.Rand, fifo bool) (messages int, wait time.Duration) {
	if fifo || !chance(r, 30) {
		return 1, 0
	}
	return 2 + r.IntN(4), between(r, time.Millisecond, one(r, 20*time.Millisecond, time.Second))
}

// presets are topologies of every kind: by reject, by publish, in tiers, through a shared exchange, in the queue itself.
var presets = []topology.Options{
	{Preset: topology.PresetFanout},
	{Preset: topology.PresetFanout, QueueType: "quorum"},
	{Preset: topology.PresetFanout, RetryDelays: []time.Duration{time.Second, 4 * time.Second}},
	{Preset: topology.PresetTopicTiers, RetryDelays: []time.Duration{500 * time.Millisecond, 3 * time.Second, 6 * time.Second}},
	{Preset: topology.PresetPerQueue, Bindings: []topology.Binding{{Exchange: "domain.events", Key: "order.*"}}},
	{Preset: topology.PresetDelayLadder, Bindings: []topology.Binding{{Exchange: "sim.events", Key: "order.#"}}},
	{Preset: topology.PresetDeadLetter, Queue: "sim.orders", Bindings: []topology.Binding{{Exchange: "sim", Key: "order.created"}}},
	{Preset: topology.PresetNative},
	{Preset: topology.PresetNative, RetryDelays: []time.Duration{500 * time.Millisecond, 2 * time.Second}},
}

func drawPlan(r *rand.Rand) (name string, plan *topology.Plan) {
	o := one(r, presets...)
	o.Service = "sim-orders"
	if retries := 1 + r.IntN(5); chance(r, 80) && len(o.RetryDelays) == 0 && o.Preset != topology.PresetDelayLadder {
		o.MaxRetries = &retries
		o.RetryDelay = between(r, 100*time.Millisecond, 5*time.Second).Round(time.Millisecond)
	}
	plan, err := topology.Build(o)
	if err == nil {
		err = plan.Validate()
	}
	if err != nil {
		panic(fmt.Sprintf("build %+v: %v", o, err))
	}
	return o.Preset, plan
}
