package main

import (
	"fmt"
	"path/filepath"
)

// curve is how the sidecar's CPU per message grows with one property of the load.
type curve struct {
	Name   string  `json:"name"`
	Unit   string  `json:"unit"`
	Points []point `json:"points"`

	// For headers: µs per message without any, and µs per byte of their names and values.
	Base    float64 `json:"fit_base_us,omitempty"`
	PerByte float64 `json:"fit_us_per_byte,omitempty"`
}

type point struct {
	X    int    `json:"x"`
	Load load   `json:"load"`
	CPU  spread `json:"cpu_us_per_message"` // of the sidecar
	Rate spread `json:"messages_per_s"`
}

// growth: one property of the load at a time, the others as in the drained runs.
func (b *bench) growth() error {
	base := load{Messages: b.size(20_000), Body: 1024, Concurrency: 50}
	for _, axis := range []struct {
		name, unit string
		xs         []int
		with       func(l load, x int) load
	}{
		{"backlog", "messages", []int{10_000, 100_000, 1_000_000}, func(l load, x int) load { l.Messages = b.size(x); return l }},
		{"concurrency", "in flight", []int{1, 10, 50, 200, 1000}, func(l load, x int) load { l.Concurrency = x; return l }},
		{"headers", "headers", []int{0, 8, 16, 32, 64}, func(l load, x int) load { l.Headers = x; return l }},
		{"body", "bytes", []int{0, 1 << 10, 16 << 10, 128 << 10, 1 << 20}, func(l load, x int) load {
			l.Body = x
			l.Messages = max(min(l.Messages, b.size(512<<20)/max(x, 1)), 50) // at most 512 MiB in the queue
			return l
		}},
	} {
		c := curve{Name: axis.name, Unit: axis.unit}
		runs := make([][]*run, len(axis.xs))
		var steps []func() error
		for i, x := range axis.xs {
			l := axis.with(base, x)
			c.Points = append(c.Points, point{X: x, Load: l})
			steps = append(steps, func() error {
				if l.Messages > 200_000 && len(runs[i]) > 0 {
					return nil // once is enough: a million messages are their own average
				}
				b.say("  %s %d, %d messages", axis.name, x, l.Messages)
				r, err := b.one(b.sidecar, l)
				runs[i] = append(runs[i], r)
				return err
			})
		}
		if err := b.rounds(min(b.o.runs, 3), steps...); err != nil {
			return err
		}
		c.finish(runs)
		b.result.Growth = append(b.result.Growth, c)
	}
	return nil
}

func (c *curve) finish(runs [][]*run) {
	var bytes, us []float64
	for i := range c.Points {
		var cpu, rate []float64
		for _, r := range runs[i] {
			cpu = append(cpu, r.CPU/float64(r.Load.Messages)*1e6)
			rate = append(rate, r.Rate)
		}
		p := &c.Points[i]
		p.CPU, p.Rate = spreadOf(cpu), spreadOf(rate)
		bytes, us = append(bytes, float64(p.Load.headerBytes())), append(us, p.CPU.Median)
	}
	if c.Name == "headers" {
		c.Base, c.PerByte = fit(bytes, us)
	}
}

// worst is the largest deviation of a curve's points from the value at x, as a share of it; points of other loads than
// the bar speaks of are left out by from.
func (c *curve) worst(x, from int) (deviation float64) {
	var reference float64
	for _, p := range c.Points {
		if p.X == x {
			reference = p.CPU.Median
		}
	}
	for _, p := range c.Points {
		if d := p.CPU.Median/reference - 1; p.X >= from && abs(d) > abs(deviation) {
			deviation = d
		}
	}
	return deviation
}

func abs(f float64) float64 { return max(f, -f) }

// profile: one drained run under a CPU profile, and where its samples fall.
func (b *bench) profile() error {
	file := filepath.Join(b.o.out, "cpu.pprof")
	c := candidate{name: "profile", path: filepath.Join(b.dir, "profile"), sidecar: true, env: []string{"CPUPROFILE=" + file}}
	r, err := b.one(c, load{Messages: b.size(200_000), Body: 1024, Concurrency: 50})
	if err != nil {
		return err
	}
	parts, err := breakdownOf(file)
	if err != nil {
		return err
	}
	b.result.Profile = parts
	b.say("  %.3f CPU s/10k under the profiler", r.per10k(r.CPU))
	for _, p := range parts {
		b.say("  %5.1f %%  %s", 100*p.Share, p.Name)
	}
	if len(parts) == 0 {
		return fmt.Errorf("%s holds no samples", file)
	}
	return nil
}
