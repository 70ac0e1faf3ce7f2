package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// batchWait is SIDECAR_BATCH_WAIT, and the patience of the loop by hand.
const batchWait = 20 // ms

// single is the candidate without batches.
const single = "single"

// batchFormats are those of SIDECAR_BATCH_FORMAT, each with what its bodies have once for every message.
var batchFormats = []struct{ name, item string }{
	{"jsonl", "\n"},
	{"cloudevents", `"specversion":`},
}

// batchesResult has the figures of POSTs with many messages.
type batchesResult struct {
	Machine machine `json:"machine"`
	Quick   bool    `json:"quick,omitempty"` // no figures to quote
	Drained []*run  `json:"drained,omitempty"`
	Rate    []paced `json:"rate,omitempty"`
}

// batched is a candidate with its load.
type batched struct {
	candidate
	load
}

// gathering is the sidecar with batches of a size.
func (b *bench) gathering(size int, format, item string) batched {
	c := b.sidecar
	c.name = fmt.Sprintf("%d, %s", size, format)
	c.env = []string{
		"SIDECAR_BATCH_SIZE=" + strconv.Itoa(size), "SIDECAR_BATCH_FORMAT=" + format,
		"SIDECAR_BATCH_WAIT=" + strconv.Itoa(batchWait) + "ms",
	}
	// A POST has more to do than one of a single message, so fewer of them are under way: as many as the default is.
	return batched{c, load{Body: 1024, JSON: true, Concurrency: 10, Batch: size, Item: item}}
}

// byHand is the loop by hand with batches of a size.
func (b *bench) byHand(size int) batched {
	c := b.baseline
	c.name, c.env = fmt.Sprintf("%d, by hand", size), []string{"BATCH=" + strconv.Itoa(size)}
	return batched{c, load{Body: 1024, JSON: true, Concurrency: 10, Batch: size, Item: "\n"}}
}

func (b *bench) oneByOne() batched {
	c := b.sidecar
	c.name = single
	return batched{c, load{Body: 1024, JSON: true, Concurrency: 50}}
}

// drainedInBatches: a backlog, an app that answers at once, and POSTs of several sizes and formats.
func (b *bench) drainedInBatches() error {
	all := []batched{b.oneByOne()}
	for _, size := range b.batchSizes {
		all = append(all, b.byHand(size))
		for _, f := range batchFormats {
			all = append(all, b.gathering(size, f.name, f.item))
		}
	}
	keep := false
	var steps []func() error
	for _, x := range all {
		x.Messages = 2 * b.o.messages // some thousands are with the app before the clock starts
		steps = append(steps, func() error {
			r, err := b.one(x.candidate, x.load)
			if err == nil && keep {
				b.inBatches.Drained = append(b.inBatches.Drained, r)
			}
			return err
		})
	}
	b.say("  warm-up")
	if err := b.rounds(1, steps...); err != nil {
		return err
	}
	keep = true
	b.say("  measured")
	return b.rounds(b.o.runs, steps...)
}

// batchLatency: 200 messages a second, with and without batches.
func (b *bench) batchLatency() error {
	var steps []func() error
	for _, x := range []batched{b.oneByOne(), b.gathering(100, batchFormats[0].name, batchFormats[0].item)} {
		x.Concurrency = 50
		steps = append(steps, func() error {
			p, err := b.pacedRun(x.candidate, x.load)
			b.inBatches.Rate = append(b.inBatches.Rate, p)
			return err
		})
	}
	return b.rounds(min(b.o.runs, 3), steps...)
}

// added is by how much a latency is larger with batches, round by round.
func (s *batchesResult) added(latency func(paced) float64) (out []float64) {
	var without, with []float64
	for _, p := range s.Rate {
		if p.Candidate == single {
			without = append(without, latency(p))
		} else {
			with = append(with, latency(p))
		}
	}
	for i := range min(len(without), len(with)) {
		out = append(out, with[i]-without[i])
	}
	return out
}

func p50(p paced) float64 { return p.P50 }
func p99(p paced) float64 { return p.P99 }

// figures are the measured ones that have a bar.
func (s *batchesResult) figures() (out []figure) {
	add := func(name string, values []float64, unit string, bar float64, atLeast bool) {
		if len(values) > 0 {
			out = append(out, figure{name, spreadOf(values), unit, bar, math.NaN(), atLeast})
		}
	}
	hundred := of(s.Drained, "100, jsonl")
	add("sidecar CPU per 10k messages, 100 per POST, jsonl", each(hundred, cpuPer), " s", 0.08, false)
	add("rate with 100 per POST ÷ single, jsonl", ratios(each(hundred, rateOf), each(of(s.Drained, single), rateOf)), "",
		1.6, true)
	add(fmt.Sprintf("latency added at %d msg/s, p50", ratePerSecond), s.added(p50), " ms", batchWait+2, false)
	add(fmt.Sprintf("latency added at %d msg/s, p99", ratePerSecond), s.added(p99), " ms", batchWait+2, false)
	return out
}

// markdown is the report.
func (s *batchesResult) markdown(figures []figure) string {
	var b strings.Builder
	summary(&b, s.Machine, s.Quick, figures)
	if len(s.Drained) > 0 {
		first := s.Drained[0]
		fmt.Fprintf(&b, "\n### Backlog drained in batches: 1 KiB of JSON, the app answers at once\n\n%d messages a run, "+
			"%d runs each, interleaved.\n", first.Load.Messages, len(of(s.Drained, first.Candidate)))
		table(&b, []string{"messages per POST", "POSTs at once", "msg/s", "÷ single", "CPU s/10k", "broker CPU s/10k",
			"app CPU s/10k", "peak RSS MiB"}, s.drainedRows)
	}
	if len(s.Rate) > 0 {
		fmt.Fprintf(&b, "\n### %d messages a second, in batches\n\nLatency from publish to arrival at the app, "+
			"`SIDECAR_BATCH_WAIT=%dms`.\n", ratePerSecond, batchWait)
		table(&b, []string{"messages per POST", "CPU, % of a core", "p50 ms", "p99 ms"}, pacedRows(s.Rate))
	}
	return b.String()
}

func (s *batchesResult) drainedRows(row func(...string)) {
	base := each(of(s.Drained, single), rateOf)
	for _, name := range candidatesOf(s.Drained) {
		own := of(s.Drained, name)
		row(name, strconv.Itoa(own[0].Load.Concurrency), spreadOf(each(own, rateOf)).String(),
			spreadOf(ratios(each(own, rateOf), base)).String(), spreadOf(each(own, cpuPer)).String(),
			spreadOf(each(own, brokerPer)).String(), spreadOf(each(own, appPer)).String(),
			number(spreadOf(each(own, peakOf)).Median))
	}
}
