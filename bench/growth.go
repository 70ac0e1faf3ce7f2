package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// curve is how a candidate's CPU per message grows with one property of the load.
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
	CPU  spread `json:"cpu_us_per_message"`
	Rate spread `json:"messages_per_s"`
	Runs []*run `json:"runs"`
}

// What a load is unless a curve says otherwise.
const (
	usualConcurrency = 50
	usualBody        = 1024
)

// growth: one property of the load at a time, the others as in the drained runs.
func (b *bench) growth() error {
	base := load{Messages: b.size(20_000), Body: usualBody, Concurrency: usualConcurrency}
	concurrency := func(l load, x int) load {
		l.Concurrency = x
		l.Messages = max(l.Messages, b.size(50*x)) // many times what is prefetched before the clock starts
		return l
	}
	for _, axis := range []struct {
		name, unit string
		who        candidate
		xs         []int
		with       func(l load, x int) load
	}{
		{"backlog", "backlog", b.sidecar, []int{10_000, 100_000, 1_000_000},
			func(l load, x int) load { l.Messages = b.size(x); return l }},
		{"concurrency", "in flight", b.sidecar, []int{1, 10, 50, 200, 1000}, concurrency},
		{"concurrency, baseline", "in flight", b.baseline, []int{1, 10, 50, 200, 1000}, concurrency},
		{"headers", "headers", b.sidecar, []int{0, 8, 16, 32, 64}, func(l load, x int) load { l.Headers = x; return l }},
		{"body", "bytes", b.sidecar, []int{0, 1 << 10, 16 << 10, 128 << 10, 1 << 20}, func(l load, x int) load {
			l.Body = x
			l.Messages = min(l.Messages, max(512<<20/max(x, 1), 1)) // at most 512 MiB in the queue
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
				r, err := b.one(axis.who, l)
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
			cpu = append(cpu, r.CPU/r.counted()*1e6)
			rate = append(rate, r.Rate)
		}
		p := &c.Points[i]
		p.CPU, p.Rate, p.Runs = spreadOf(cpu), spreadOf(rate), runs[i]
		bytes, us = append(bytes, float64(p.Load.headerBytes())), append(us, p.CPU.Median)
	}
	if c.Name == "headers" {
		c.Base, c.PerByte = fit(bytes, us)
	}
}

// reference is the point that the others are compared with: what the other curves have there, or else the first one.
func (c *curve) reference() point {
	for _, p := range c.Points {
		if strings.HasPrefix(c.Name, "concurrency") && p.X == usualConcurrency || c.Name == "body" && p.X == usualBody {
			return p
		}
	}
	return c.Points[0]
}

// relative is a point's CPU per message in parts of the reference's; 1 where there is nothing to compare with.
func (c *curve) relative(p point) float64 {
	if reference := c.reference().CPU.Median; reference > 0 {
		return p.CPU.Median / reference
	}
	return 1
}

// worst is the largest deviation of a point from the reference, as a share of it.
func (c *curve) worst() (deviation float64) {
	for _, p := range c.Points {
		if d := c.relative(p) - 1; abs(d) > abs(deviation) {
			deviation = d
		}
	}
	return deviation
}

func abs(f float64) float64 { return max(f, -f) }

// profile: one drained run under a CPU profile, and where its samples fall.
func (b *bench) profile() error {
	file := filepath.Join(b.o.out, "cpu.pprof")
	c := candidate{name: "profile", path: filepath.Join(b.tools, "profile"), sidecar: true,
		env: []string{"CPUPROFILE=" + file}}
	r, err := b.one(c, load{Messages: b.size(200_000), Body: 1024, Concurrency: 50})
	if err != nil {
		return err
	}
	parts, err := breakdownOf(b.ctx, file)
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
