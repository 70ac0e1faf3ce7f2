package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// produced is all that one execution found about sending, as it is written to produce.json.
type produced struct {
	Machine  machine           `json:"machine"`
	Database string            `json:"postgresql,omitempty"`
	Publish  []*pubRun         `json:"publish,omitempty"`
	Batch    []*pubRun         `json:"publish_batch,omitempty"`
	Outbox   []*relayRun       `json:"outbox,omitempty"`
	Latency  []latencies       `json:"outbox_latency,omitempty"`
	Long     []*long           `json:"outbox_million,omitempty"`
	Rest     map[string][]rest `json:"rest,omitempty"`
	Steady   []steadySample    `json:"outbox_steady,omitempty"`
	Quick    bool              `json:"quick,omitempty"` // no figures to quote
}

// values is one figure of every run that fits.
func values[R any](runs []R, fits func(R) bool, figure func(R) float64) (out []float64) {
	for _, r := range runs {
		if fits(r) {
			out = append(out, figure(r))
		}
	}
	return out
}

func published(name string) func(*pubRun) bool {
	return func(r *pubRun) bool { return r.Candidate == name }
}

func relayed(name string, relays int) func(*relayRun) bool {
	return func(r *relayRun) bool { return r.Candidate == name && r.Load.Relays == relays }
}

func pubRate(r *pubRun) float64     { return r.Rate }
func relayRate(r *relayRun) float64 { return r.Rate }

// figures are the measured ones that have a bar.
func (p *produced) figures() (out []figure) {
	add := func(name string, values []float64, unit string, bar float64, atLeast bool) {
		if len(values) > 0 {
			out = append(out, figure{name, spreadOf(values), unit, bar, math.NaN(), atLeast})
		}
	}
	add("publish: confirmed requests a second, C=50", values(p.Publish, published("sidecar"), pubRate), "", 8000, true)
	add("outbox: rows a second, one relay", values(p.Outbox, relayed("sidecar", 1), relayRate), "", 8000, true)
	cpu := func(r *relayRun) float64 { return r.per10k(r.CPU) }
	add("outbox: CPU of one relay ÷ loop by hand", ratios(values(p.Outbox, relayed("sidecar", 1), cpu),
		values(p.Outbox, relayed("baseline", 1), cpu)), "", 0.9, false)
	var p50 []float64
	for _, l := range p.Latency {
		p50 = append(p50, l.Outbox.P50-l.Direct.P50)
	}
	add("outbox: added latency p50, 50 rows a second", p50, " ms", 10, false)
	for _, l := range p.Long {
		if !l.Open {
			add("outbox: table after a million rows ÷ before", []float64{l.Run.growth()}, "", 1.2, false)
			add("outbox: change of RSS while a million rows drain", []float64{100 * l.growth()}, " %", 15, false)
		}
	}
	return out
}

// markdown is the report.
func (p *produced) markdown(figures []figure) string {
	var b strings.Builder
	m := p.Machine
	database := ""
	if p.Database != "" {
		database = ", PostgreSQL " + p.Database
	}
	fmt.Fprintf(&b, "Measured %s at %s, %s, RabbitMQ %s%s, %s, %d cores for everything, %s. Medians (ranges).\n",
		m.Date, m.Commit, m.Go, m.Broker, database, m.CPU, m.Cores, m.Kernel)
	if p.Quick {
		fmt.Fprintf(&b, "\n**A quick look: a tenth of the messages, no figures to quote.**\n")
	}
	if len(figures) > 0 {
		table(&b, []string{"figure", "measured", "bar", ""}, func(row func(...string)) {
			for _, f := range figures {
				row(f.name, f.got.String()+f.unit, f.limit(f.bar), f.verdict())
			}
		})
	}
	requests(&b, "Publish: one message of 1 KiB a request", p.Publish)
	requests(&b, "Publish: 100 messages of 1 KiB a request", p.Batch)
	p.relays(&b)
	p.latencies(&b)
	p.long(&b)
	p.rest(&b)
	p.steady(&b)
	return b.String()
}

// requests are runs over HTTP.
func requests(b *strings.Builder, title string, runs []*pubRun) {
	if len(runs) == 0 {
		return
	}
	l := runs[0].Load
	fmt.Fprintf(b, "\n### %s\n\n%d messages a run over %d connections, %d runs each, interleaved.\n", title, l.messages(),
		l.Connections,
		len(values(runs, published("sidecar"), pubRate)))
	table(b, []string{"", "msg/s", "÷ baseline", "CPU s/10k", "broker CPU s/10k", "client CPU s/10k", "p50 ms", "p99 ms",
		"peak RSS MiB"}, func(row func(...string)) {
		base := values(runs, published("baseline"), pubRate)
		var seen []string
		for _, r := range runs {
			if slices.Contains(seen, r.Candidate) {
				continue
			}
			seen = append(seen, r.Candidate)
			all := func(figure func(*pubRun) float64) spread {
				return spreadOf(values(runs, published(r.Candidate), figure))
			}
			row(r.Candidate, all(pubRate).String(), number(spreadOf(ratios(values(runs, published(r.Candidate), pubRate),
				base)).Median),
				all(func(r *pubRun) float64 { return r.per10k(r.CPU) }).String(),
				all(func(r *pubRun) float64 { return r.per10k(r.Broker) }).String(),
				all(func(r *pubRun) float64 { return r.per10k(r.Client) }).String(),
				all(func(r *pubRun) float64 { return r.P50 }).String(),
				all(func(r *pubRun) float64 { return r.P99 }).String(),
				number(all(func(r *pubRun) float64 { return mib(r.Peak) }).Median))
		}
	})
}

func (p *produced) relays(b *strings.Builder) {
	if len(p.Outbox) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Outbox: rows of 1 KiB, committed at once\n\nFrom the commit until all are marked as sent. "+
		"Interleaved. The table is heap, TOAST and indexes.\n")
	table(b, []string{"", "relays", "rows", "rows/s", "÷ baseline", "CPU s/10k", "database CPU s/10k", "broker CPU s/10k",
		"a claim, ms", "peak RSS MiB", "table after ÷ before"}, func(row func(...string)) {
		type kind struct {
			name   string
			relays int
		}
		var seen []kind
		for _, r := range p.Outbox {
			k := kind{r.Candidate, r.Load.Relays}
			if slices.Contains(seen, k) {
				continue
			}
			seen = append(seen, k)
			all := func(figure func(*relayRun) float64) spread {
				return spreadOf(values(p.Outbox, relayed(k.name, k.relays), figure))
			}
			ratio := ratios(values(p.Outbox, relayed(k.name, k.relays), relayRate),
				values(p.Outbox, relayed("baseline", k.relays), relayRate))
			row(k.name, fmt.Sprint(k.relays), fmt.Sprint(r.Load.Rows), all(relayRate).String(), number(spreadOf(ratio).Median),
				all(func(r *relayRun) float64 { return r.per10k(r.CPU) }).String(),
				all(func(r *relayRun) float64 { return r.per10k(r.Database) }).String(),
				all(func(r *relayRun) float64 { return r.per10k(r.Broker) }).String(),
				all(func(r *relayRun) float64 { return r.ClaimMS }).String(),
				number(all(func(r *relayRun) float64 { return mib(r.Peak) }).Median), all((*relayRun).growth).String())
		}
	})
}

func (p *produced) latencies(b *strings.Builder) {
	if len(p.Latency) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Outbox: latency at %d rows a second\n\nTo the arrival at a consumer: of a message that is "+
		"published directly, and of a row, from the moment its COMMIT is sent.\n", rowsPerSecond)
	all := func(figure func(latencies) float64) string {
		return spreadOf(values(p.Latency, func(latencies) bool { return true }, figure)).String()
	}
	table(b, []string{"", "p50 ms", "p99 ms", "CPU, % of a core", "database CPU, % of a core"}, func(row func(...string)) {
		row("direct", all(func(l latencies) float64 { return l.Direct.P50 }),
			all(func(l latencies) float64 { return l.Direct.P99 }), "–", "–")
		row("outbox", all(func(l latencies) float64 { return l.Outbox.P50 }),
			all(func(l latencies) float64 { return l.Outbox.P99 }),
			all(func(l latencies) float64 { return 100 * l.CPU }), all(func(l latencies) float64 { return 100 * l.Database }))
		row("added", all(func(l latencies) float64 { return l.Outbox.P50 - l.Direct.P50 }),
			all(func(l latencies) float64 { return l.Outbox.P99 - l.Direct.P99 }), "–", "–")
	})
}

func (p *produced) long(b *strings.Builder) {
	if len(p.Long) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Outbox: many rows\n\nOne relay, one run each. \"First\" and \"last\" are the first and the "+
		"last tenth of the rows.\n")
	table(b, []string{"rows", "another transaction is open", "rows/s first", "rows/s last", "a claim first, ms",
		"a claim last, ms", "CPU s/10k", "database CPU s/10k",
		"peak RSS MiB", "change of RSS, %", "table before, MiB", "after ÷ before"}, func(row func(...string)) {
		for _, l := range p.Long {
			first, claim := l.between(0, 0.1)
			last, lastClaim := l.between(0.9, 1)
			open := "no"
			if l.Open {
				open = "yes"
			}
			row(fmt.Sprint(l.Run.Load.Rows), open, number(first), number(last), number(claim), number(lastClaim),
				number(l.Run.per10k(l.Run.CPU)),
				number(l.Run.per10k(l.Run.Database)), number(mib(l.Run.Peak)), number(100*l.growth()),
				number(l.Run.Live/(1<<20)), number(l.Run.growth()))
		}
	})
}

func (p *produced) rest(b *strings.Builder) {
	if len(p.Rest) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### Nothing to do\n\n%d seconds, after the start.\n", restSeconds)
	table(b, []string{"", "RSS MiB", "CPU, % of a core", "database CPU, % of a core"}, func(row func(...string)) {
		for _, name := range slices.Sorted(maps.Keys(p.Rest)) {
			all := func(figure func(rest) float64) string {
				return spreadOf(values(p.Rest[name], func(rest) bool { return true }, figure)).String()
			}
			row(name, all(func(r rest) float64 { return mib(r.RSS) }), all(func(r rest) float64 { return 100 * r.CPU }),
				all(func(r rest) float64 { return 100 * r.Database }))
		}
	})
}
