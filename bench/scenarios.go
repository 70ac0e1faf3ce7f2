package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// scenario is one part of the benchmark. It writes what it finds into the result.
type scenario struct {
	name string
	half string
	run  func(b *bench) error
	long bool // it runs only when it is named: names of a half leave it out
}

// The parts of the product: the two halves, several queues in one sidecar, retries by two topologies, and batches.
const (
	consume = "consume"
	produce = "produce"
	several = "several"
	retried = "retries"
	batches = "batches"
)

func scenarios() []scenario {
	return []scenario{
		{"drained", consume, (*bench).drained, false},
		{"slow", consume, (*bench).slow, false},
		{"rate", consume, (*bench).rate, false},
		{"start", consume, (*bench).starts, false},
		{"idle", consume, (*bench).idle, false},
		{"growth", consume, (*bench).growth, false},
		{"profile", consume, (*bench).profile, false},
		{"publish", produce, (*bench).httpSingle, false},
		{"publish-batch", produce, (*bench).httpBatch, false},
		{"outbox", produce, (*bench).outbox, false},
		{"outbox-latency", produce, (*bench).latency, false},
		{"outbox-million", produce, (*bench).million, false},
		{"outbox-idle", produce, (*bench).produceIdle, false},
		{"outbox-steady", produce, (*bench).steady, true},
		{"queues-idle", several, (*bench).severalIdle, false},
		{"queues-hang", several, (*bench).hanging, false},
		{"queues-two", several, (*bench).two, false},
		{"order", several, (*bench).order, false},
		{"retries", retried, (*bench).retries, false},
		{"batches", batches, (*bench).drainedInBatches, false},
		{"batches-latency", batches, (*bench).batchLatency, false},
	}
}

// bench is one execution of the benchmark.
type bench struct {
	*rig

	o          *options
	sidecar    candidate
	baseline   candidate
	candidates []candidate // baseline, sidecar, further sidecars
	result     *result
	produced   *produced
	severally  *severalResult
	retriesBy  *retriesResult
	inBatches  *batchesResult
	retryDelay time.Duration
	batchSizes []int // messages of one POST at most
	paced      int   // messages of a run at the low rate
}

func newBench(o *options, r *rig) *bench {
	b := &bench{
		rig: r, o: o,
		sidecar:  candidate{name: "sidecar", path: o.sidecar, sidecar: true},
		baseline: candidate{name: "baseline", path: filepath.Join(r.tools, "baseline")},
		result:   newResult(r, o), retryDelay: time.Second, batchSizes: []int{10, 100, 1000},
		paced: ratePerSecond * rateSeconds,
	}
	b.severally = &severalResult{Machine: b.result.Machine, Quick: o.quick, Idle: map[string][]sum{}}
	b.retriesBy = &retriesResult{Machine: b.result.Machine, Quick: o.quick}
	b.inBatches = &batchesResult{Machine: b.result.Machine, Quick: o.quick}
	b.produced = &produced{Machine: b.result.Machine, Quick: o.quick}
	if r.db != nil {
		b.produced.Database = r.db.version
	}
	b.candidates = []candidate{b.baseline, b.sidecar}
	for _, a := range o.against {
		b.candidates = append(b.candidates, candidate{name: a.name, path: a.path, sidecar: true})
	}
	return b
}

// size is a number of messages, or a tenth of it for a first impression.
func (b *bench) size(n int) int {
	if b.o.quick {
		return max(n/10, 1)
	}
	return n
}

// say reports progress.
func (b *bench) say(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// rounds runs each of the steps once per round, in an order that rotates, so that what else the machine does falls on
// all of them alike.
func (b *bench) rounds(n int, steps ...func() error) error {
	for i := range n {
		at := i % len(steps)
		for _, step := range slices.Concat(steps[at:], steps[:at]) {
			if err := step(); err != nil {
				return err
			}
		}
	}
	return nil
}

// one runs a candidate once and reports it.
func (b *bench) one(c candidate, l load) (*run, error) {
	r, err := b.drain(c, l)
	if err != nil {
		return nil, err
	}
	b.say("  %-10s %8.0f msg/s   CPU s/10k %6.3f, broker %6.3f, app %6.3f   peak %5.1f MiB   %d connections, %d in flight",
		c.name, r.Rate, r.per10k(r.CPU), r.per10k(r.Broker), r.per10k(r.App), mib(r.Peak), r.Stats.Connections,
		r.Stats.MaxInflight)
	return r, nil
}

// collected runs every candidate with the load: once to warm up, then b.o.runs times, interleaved.
func (b *bench) collected(l load, candidates []candidate, also ...func() error) ([]*run, error) {
	var out []*run
	keep := false
	steps := slices.Clone(also)
	for _, c := range candidates {
		steps = append(steps, func() error {
			r, err := b.one(c, l)
			if err == nil && keep {
				out = append(out, r)
			}
			return err
		})
	}
	b.say("  warm-up")
	if err := b.rounds(1, steps...); err != nil {
		return nil, err
	}
	keep = true
	b.say("  measured")
	return out, b.rounds(b.o.runs, steps...)
}

// drained: a backlog, an app that answers at once. Here the sidecar also runs with the app on a Unix socket.
func (b *bench) drained() error {
	unix := b.sidecar
	unix.name, unix.env = "unix socket", []string{"SIDECAR_APP_URL=unix://" + b.socket() + ":/"}
	runs, err := b.collected(load{Messages: b.o.messages, Body: 1024, Concurrency: b.o.flight},
		append(slices.Clone(b.candidates), unix))
	b.result.Drained = runs
	return err
}

// slow: an app that takes 10 ms. The ceiling is what the same app gives to connections that do nothing but ask.
func (b *bench) slow() error {
	l := load{Messages: b.size(30_000), Body: 1024, Concurrency: 100, Sleep: 10 * time.Millisecond}
	ceiling := func() error {
		rate, err := b.ceiling(l)
		if err == nil {
			b.say("  %-10s %8.0f msg/s", "ceiling", rate)
			b.result.Ceilings = append(b.result.Ceilings, rate)
		}
		return err
	}
	runs, err := b.collected(l, b.candidates, ceiling)
	if len(b.result.Ceilings) > b.o.runs {
		b.result.Ceilings = b.result.Ceilings[1:] // the first was warm-up
	}
	b.result.Slow = runs
	return err
}

// starts: how long from the start of the process to the first POST, with one message waiting.
func (b *bench) starts() error {
	n := 20
	if b.o.quick {
		n = 3
	}
	var steps []func() error
	for _, c := range b.candidates {
		steps = append(steps, func() error {
			ms, err := b.firstPost(c)
			if err == nil {
				b.result.Start[c.name] = append(b.result.Start[c.name], ms)
			}
			return err
		})
	}
	if err := b.rounds(n, steps...); err != nil {
		return err
	}
	for _, c := range b.candidates {
		b.say("  %-10s median %.0f ms", c.name, spreadOf(b.result.Start[c.name]).Median)
	}
	return nil
}

func (b *bench) firstPost(c candidate) (ms float64, err error) {
	if err := b.ask("POST", "/reset", appPlan{Expect: 1}, nil); err != nil {
		return 0, err
	}
	if err := b.fill(load{Messages: 1, Body: 1024}); err != nil {
		return 0, err
	}
	begin := time.Now()
	p, err := b.launch(c, 50)
	if err != nil {
		return 0, err
	}
	if err := errors.Join(b.waitReceived(p, 1), p.stop()); err != nil {
		return 0, fmt.Errorf("%s: %w", c.name, err)
	}
	out := &run{Candidate: c.name, Load: load{Messages: 1, Concurrency: 50}}
	err = b.account(out)
	return float64(out.Stats.First-begin.UnixNano()) / 1e6, err
}

// idle: memory at rest, after the start and after a burst.
func (b *bench) idle() error {
	for range min(b.o.runs, 3) {
		for _, c := range b.candidates {
			i, err := b.resting(c)
			if err != nil {
				return err
			}
			b.say("  %-10s %.1f MiB after the start, %.1f MiB after a burst, %.1f of them its own", c.name, mib(i.Fresh),
				mib(i.Rested), mib(i.Own))
			b.result.Idle[c.name] = append(b.result.Idle[c.name], i)
		}
	}
	return nil
}

func (b *bench) resting(c candidate) (idle, error) {
	burst := load{Messages: b.size(30_000), Body: 1024, Concurrency: 50}
	if err := b.ask("POST", "/reset", appPlan{Expect: burst.Messages}, nil); err != nil {
		return idle{}, err
	}
	p, err := b.launch(c, burst.Concurrency)
	if err != nil {
		return idle{}, err
	}
	i, err := b.restingAround(p, burst)
	if err := errors.Join(err, p.stop()); err != nil {
		return idle{}, fmt.Errorf("%s: %w", c.name, err)
	}
	return i, b.account(&run{Candidate: c.name, Load: burst})
}

// restingAround is the memory of p before and after a burst.
func (b *bench) restingAround(p *process, burst load) (idle, error) {
	if err := b.pause(3 * time.Second); err != nil {
		return idle{}, err
	}
	before, err := memoryOf(p.pid())
	if err != nil {
		return idle{}, err
	}
	if err := b.fill(burst); err != nil {
		return idle{}, err
	}
	if err := b.waitReceived(p, burst.Messages); err != nil {
		return idle{}, err
	}
	if err := b.pause(12 * time.Second); err != nil {
		return idle{}, err
	}
	after, err := memoryOf(p.pid())
	return idle{before.now, after.now, after.own}, err
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
