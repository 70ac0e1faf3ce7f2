package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// figure is one of the figures to reach.
type figure struct {
	name         string
	got          spread
	unit         string
	bar, stretch float64 // NaN: none
	atLeast      bool    // else at most
}

func (f *figure) reaches(limit float64) bool {
	if f.atLeast {
		return f.got.Median >= limit
	}
	return f.got.Median <= limit
}

func (f *figure) verdict() string {
	switch {
	case !f.reaches(f.bar):
		return "**missed**"
	case !math.IsNaN(f.stretch) && f.reaches(f.stretch):
		return "stretch"
	}
	return "ok"
}

func (f *figure) limit(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case f.atLeast:
		return "≥ " + number(v) + f.unit
	}
	return "≤ " + number(v) + f.unit
}

// number prints three significant digits, and not more than the value needs.
func number(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1000:
		return fmt.Sprintf("%.0f", v)
	case a >= 100, a == math.Trunc(a):
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return strings.TrimRight(strings.TrimRight(fmt.Sprintf("%.3f", v), "0"), ".")
}

func (s spread) String() string {
	if s.Min == s.Max {
		return number(s.Median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Min), number(s.Max))
}

// figures are the measured ones that have a bar.
func (r *result) figures() (out []figure) {
	add := func(name string, values []float64, unit string, bar, stretch float64, atLeast bool) {
		if len(values) > 0 {
			out = append(out, figure{name, spreadOf(values), unit, bar, stretch, atLeast})
		}
	}
	own, base := of(r.Drained, "sidecar"), of(r.Drained, "baseline")
	add("sidecar CPU per 10k messages, C=50", each(own, cpuPer), " s", 0.30, 0.20, false)
	if r.Machine.BrokerCPU {
		add("broker CPU per 10k messages", each(own, brokerPer), " s", 0.45, 0.40, false)
	}
	add("drain rate ÷ hand-written consumer", ratios(each(own, rateOf), each(base, rateOf)), "", 1.6, 1.9, true)
	add("slow app (10 ms, C=100): share of the ceiling", ratios(each(of(r.Slow, "sidecar"), rateOf), r.Ceilings), "",
		0.95, 0.98, true)
	var fresh, rested, anonymous []float64
	for _, i := range r.Idle["sidecar"] {
		fresh, rested, anonymous = append(fresh, mib(i.Fresh)), append(rested, mib(i.Rested)), append(anonymous, mib(i.Own))
	}
	add("idle RSS after the start", fresh, " MiB", 14, 10, false)
	add("idle RSS after a burst", rested, " MiB", 14, 10, false)
	add("idle memory of its own after a burst", anonymous, " MiB", 5, 4, false)
	add("peak RSS", each(own, peakOf), " MiB", 22, 16, false)
	var cpu []float64
	for _, p := range r.Rate {
		if p.Candidate == "sidecar" {
			cpu = append(cpu, 100*p.CPU)
		}
	}
	add("CPU at 200 msg/s, of a core", cpu, " %", 5, 3.5, false)
	if r.Binary > 0 {
		add("binary", []float64{mib(r.Binary)}, " MiB", 16, math.NaN(), false)
	}
	add("start to first POST", r.Start["sidecar"], " ms", 150, 60, false)
	for _, c := range r.Growth {
		switch c.Name {
		case "backlog":
			add("CPU per message, largest change from 10k to 1M backlog", []float64{100 * abs(c.worst())}, " %", 15, math.NaN(),
				false)
		case "concurrency":
			add("CPU per message, largest change from C=1 to C=1000", []float64{100 * abs(c.worst())}, " %", 15, math.NaN(),
				false)
		case "headers":
			add("CPU per message, largest distance from linear in header bytes", []float64{100 * c.bend()}, " %", 15,
				math.NaN(), false)
		}
	}
	return out
}

// bend is the largest distance of a point from the fitted line, as a share of the line.
func (c *curve) bend() (worst float64) {
	for _, p := range c.Points {
		line := c.Base + c.PerByte*float64(p.Load.headerBytes())
		if line > 0 {
			worst = max(worst, abs(p.CPU.Median/line-1))
		}
	}
	return worst
}

// missed names the figures that miss their bar.
func missed(figures []figure) error {
	var errs []error
	for _, f := range figures {
		if !f.reaches(f.bar) {
			errs = append(errs, fmt.Errorf("%s: %s%s, want %s", f.name, number(f.got.Median), f.unit, f.limit(f.bar)))
		}
	}
	return errors.Join(errs...)
}

// markdown is the report: what it was measured on, the figures against their bars, then everything else.
func (r *result) markdown(figures []figure) string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "Measured %s at %s, %s, RabbitMQ %s, %s, %d cores for everything, %s. Medians (ranges).\n",
		m.Date, m.Commit, m.Go, m.Broker, m.CPU, m.Cores, m.Kernel)
	if r.Quick {
		fmt.Fprintf(&b, "\n**A quick look: a tenth of the messages. Backlogs, bodies and all figures are not those that "+
			"are named.**\n")
	}
	if !m.BrokerCPU {
		fmt.Fprintf(&b, "\nThe broker's processes cannot be seen from here: its CPU time is unknown and shown as 0.\n")
	}
	if len(figures) > 0 {
		table(&b, []string{"figure", "measured", "bar", "stretch", ""}, func(row func(...string)) {
			for _, f := range figures {
				row(f.name, f.got.String()+f.unit, f.limit(f.bar), f.limit(f.stretch), f.verdict())
			}
		})
	}
	r.loads(&b, "Backlog drained: 1 KiB, C=50, the app answers at once", r.Drained)
	r.loads(&b, "Slow app: 10 ms, C=100"+r.ceilingText(), r.Slow)
	r.paced(&b)
	r.others(&b)
	for _, c := range r.Growth {
		c.markdown(&b)
	}
	if len(r.Profile) > 0 {
		fmt.Fprintf(&b, "\n### Where the CPU goes\n\nCPU profile of a drained run.\n")
		table(&b, []string{"share", "what"}, func(row func(...string)) {
			for _, p := range r.Profile {
				row(fmt.Sprintf("%.1f %%", 100*p.Share), p.Name)
			}
		})
	}
	return b.String()
}

func (r *result) ceilingText() string {
	if len(r.Ceilings) == 0 {
		return ""
	}
	return fmt.Sprintf(" (ceiling %s msg/s)", spreadOf(r.Ceilings))
}

// candidatesOf returns the names of the runs in the order of their first run.
func candidatesOf(runs []*run) (out []string) {
	seen := map[string]bool{}
	for _, r := range runs {
		if !seen[r.Candidate] {
			seen[r.Candidate] = true
			out = append(out, r.Candidate)
		}
	}
	return out
}

func (r *result) loads(b *strings.Builder, title string, runs []*run) {
	if len(runs) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %s\n\n%d messages a run, %d runs each, interleaved.\n", title, runs[0].Load.Messages,
		len(of(runs, runs[0].Candidate)))
	table(b, []string{"", "msg/s", "÷ baseline", "CPU s/10k", "broker CPU s/10k", "app CPU s/10k", "peak RSS MiB",
		"connections", "most in flight"}, func(row func(...string)) {
		base := each(of(runs, "baseline"), rateOf)
		for _, name := range candidatesOf(runs) {
			own := of(runs, name)
			row(name, spreadOf(each(own, rateOf)).String(), number(spreadOf(ratios(each(own, rateOf), base)).Median),
				spreadOf(each(own, cpuPer)).String(), spreadOf(each(own, brokerPer)).String(), spreadOf(each(own, appPer)).String(),
				number(spreadOf(each(own, peakOf)).Median),
				number(spreadOf(each(own, func(r *run) float64 { return float64(r.Stats.Connections) })).Max),
				number(spreadOf(each(own, func(r *run) float64 { return float64(r.Stats.MaxInflight) })).Max))
		}
	})
}

func (r *result) paced(b *strings.Builder) {
	if len(r.Rate) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### %d messages a second\n\nLatency from publish to arrival at the app; \"broker\" is to a "+
		"consumer without an app.\n", ratePerSecond)
	table(b, []string{"", "CPU, % of a core", "p50 ms", "p99 ms"}, pacedRows(r.Rate))
}

// pacedRows writes a row for each candidate, in the order of their first runs.
func pacedRows(all []paced) func(row func(...string)) {
	return func(row func(...string)) {
		seen := map[string]bool{}
		for _, p := range all {
			if seen[p.Candidate] {
				continue
			}
			seen[p.Candidate] = true
			var cpu, p50, p99 []float64
			for _, q := range all {
				if q.Candidate == p.Candidate {
					cpu, p50, p99 = append(cpu, 100*q.CPU), append(p50, q.P50), append(p99, q.P99)
				}
			}
			used := spreadOf(cpu).String()
			if p.Candidate == "broker" {
				used = "–"
			}
			row(p.Candidate, used, spreadOf(p50).String(), spreadOf(p99).String())
		}
	}
}

// others are start times and memory at rest, of every candidate.
func (r *result) others(b *strings.Builder) {
	if len(r.Start)+len(r.Idle) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Start and rest\n")
	table(b, []string{"", "start to first POST, ms", "RSS after the start, MiB", "RSS 12 s after a burst, MiB",
		"of them its own"}, func(row func(...string)) {
		for _, name := range sortedKeys(r.Start, r.Idle) {
			var fresh, rested, own []float64
			for _, i := range r.Idle[name] {
				fresh, rested, own = append(fresh, mib(i.Fresh)), append(rested, mib(i.Rested)), append(own, mib(i.Own))
			}
			row(name, spreadOf(r.Start[name]).String(), spreadOf(fresh).String(), spreadOf(rested).String(),
				spreadOf(own).String())
		}
	})
}

func (c *curve) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n### Growth with %s\n", c.Name)
	if c.Name == "headers" {
		fmt.Fprintf(b, "\nFitted: %s µs and %s ns per byte of header names and values.\n", number(c.Base),
			number(1000*c.PerByte))
	}
	head := []string{c.Unit, "messages", "CPU µs per message", fmt.Sprintf("÷ that of %d", c.reference().X), "msg/s"}
	if c.Name == "headers" {
		head = append(head, "header bytes")
	}
	table(b, head, func(row func(...string)) {
		for _, p := range c.Points {
			cells := []string{
				fmt.Sprint(p.X), fmt.Sprint(p.Load.Messages), p.CPU.String(), fmt.Sprintf("%.2f", c.relative(p)), p.Rate.String(),
			}
			if c.Name == "headers" {
				cells = append(cells, fmt.Sprint(p.Load.headerBytes()))
			}
			row(cells...)
		}
	})
}

// table writes a Markdown table; rows calls row for each.
func table(b *strings.Builder, head []string, rows func(row func(cells ...string))) {
	line := func(cells ...string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	b.WriteByte('\n')
	line(head...)
	fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(head)))
	rows(line)
}
