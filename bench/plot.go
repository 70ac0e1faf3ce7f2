package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The plot is three panels of bars and one of a line per growth curve. Colours follow the reader's light or dark page.
const (
	plotWidth   = 960
	panelHeight = 210
	least       = 1e-6 // of a scale: a run may be too short for any CPU time
	plotStyle   = `text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-weight:600;font-size:14px}.n{fill:#57606a;font-size:11px}` +
		`.axis{stroke:#8c959f;stroke-width:1;fill:none}.grid{stroke:#d0d7de;stroke-width:1}.bg{fill:#ffffff}` +
		`.c0{fill:#0969da}.c1{fill:#bc4c00}.c2{fill:#6e7781}.l{stroke:#0969da;stroke-width:2;fill:none}.d{fill:#0969da}` +
		`@media(prefers-color-scheme:dark){text{fill:#e6edf3}.n{fill:#9198a1}.axis{stroke:#6e7681}.grid{stroke:#30363d}.bg{fill:#0d1117}` +
		`.c0{fill:#4493f8}.c1{fill:#db6d28}.c2{fill:#8b949e}.l{stroke:#4493f8}.d{fill:#4493f8}}`
)

// plot draws what was measured as SVG.
func (r *result) plot() []byte {
	var b strings.Builder
	y := 10.0
	if len(r.Drained) > 0 {
		r.drainedBars(&b, y)
		y += float64(60+34*len(candidatesOf(r.Drained))) + 20
	}
	width := float64(plotWidth) / 2
	for i, c := range r.Growth {
		c.draw(&b, float64(i%2)*width, y+float64(i/2)*(panelHeight+20), width, panelHeight)
	}
	y += float64((len(r.Growth)+1)/2) * (panelHeight + 20)
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" role="img" aria-label="CPU per 10,000 messages, drain rates and growth of CPU per message">`+
		"\n<style>%s</style>\n<rect class=\"bg\" width=\"100%%\" height=\"100%%\"/>\n%s</svg>\n", plotWidth, y+10, plotStyle,
		b.String())
}

func text(b *strings.Builder, x, y float64, class, anchor, s string) {
	fmt.Fprintf(b, `<text class="%s" x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", class, x, y, anchor,
		html.EscapeString(s))
}

// drainedBars: CPU by process on the left, the rate on the right, one row per candidate.
func (r *result) drainedBars(b *strings.Builder, top float64) {
	const labels, left, right = 110.0, 480.0, 240.0
	parts := []struct {
		name   string
		figure func(*run) float64
	}{{"consumer", cpuPer}, {"broker", brokerPer}, {"app", appPer}}
	names := candidatesOf(r.Drained)
	var mostCPU, mostRate float64
	for _, name := range names {
		own := of(r.Drained, name)
		sum := 0.0
		for _, p := range parts {
			sum += spreadOf(each(own, p.figure)).Median
		}
		mostCPU, mostRate = max(mostCPU, sum), max(mostRate, spreadOf(each(own, rateOf)).Median)
	}
	mostCPU, mostRate = max(mostCPU, least), max(mostRate, least)
	text(b, labels, top+16, "t", "start", "CPU seconds per 10,000 messages")
	text(b, labels+left+60, top+16, "t", "start", "messages per second")
	x := labels
	for i, p := range parts {
		fmt.Fprintf(b, `<rect class="c%d" x="%.1f" y="%.1f" width="10" height="10"/>`+"\n", i, x, top+26)
		text(b, x+15, top+35, "n", "start", p.name)
		x += 90
	}
	for row, name := range names {
		y := top + 48 + 34*float64(row)
		own := of(r.Drained, name)
		text(b, labels-8, y+15, "", "end", name)
		x, sum := labels, 0.0
		for i, p := range parts {
			v := spreadOf(each(own, p.figure)).Median
			w := v / mostCPU * (left - 60)
			fmt.Fprintf(b, `<rect class="c%d" x="%.1f" y="%.1f" width="%.1f" height="22"/>`+"\n", i, x, y, w)
			x, sum = x+w, sum+v
		}
		text(b, x+6, y+15, "n", "start", fmt.Sprintf("%.2f s", sum))
		rate := spreadOf(each(own, rateOf)).Median
		w := rate / mostRate * right
		fmt.Fprintf(b, `<rect class="c0" x="%.1f" y="%.1f" width="%.1f" height="22"/>`+"\n", labels+left+60, y, w)
		text(b, labels+left+60+w+6, y+15, "n", "start", fmt.Sprintf("%.0f", rate))
	}
}

// draw is one growth curve; the points have equal distances, because their values span decades.
func (c *curve) draw(b *strings.Builder, left, top, width, height float64) {
	const marginLeft, marginRight, marginTop, marginBottom = 60.0, 20.0, 34.0, 40.0
	x0, x1 := left+marginLeft, left+width-marginRight
	y0, y1 := top+height-marginBottom, top+marginTop
	most := least
	for _, p := range c.Points {
		most = max(most, p.CPU.Max)
	}
	step := niceStep(most / 4)
	most = math.Ceil(most/step) * step
	text(b, left+16, top+16, "t", "start", "CPU per message, µs, by "+c.Name)
	for v := 0.0; v <= most+step/2; v += step {
		y := y0 - v/most*(y0-y1)
		fmt.Fprintf(b, `<line class="grid" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", x0, y, x1, y)
		text(b, x0-6, y+4, "n", "end", number(v))
	}
	at := func(i int) float64 { return x0 + 20 + float64(i)*(x1-x0-40)/float64(max(len(c.Points)-1, 1)) }
	var path strings.Builder
	for i, p := range c.Points {
		y := y0 - p.CPU.Median/most*(y0-y1)
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], at(i), y)
		fmt.Fprintf(b, `<line class="axis" x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f"/>`+"\n", at(i), y0-p.CPU.Min/most*(y0-y1),
			at(i), y0-p.CPU.Max/most*(y0-y1))
		fmt.Fprintf(b, `<circle class="d" cx="%.1f" cy="%.1f" r="3.5"/>`+"\n", at(i), y)
		text(b, at(i), y-8, "n", "middle", number(p.CPU.Median))
		text(b, at(i), y0+15, "n", "middle", short(p.X))
	}
	fmt.Fprintf(b, `<path class="l" d="%s"/>`+"\n", path.String())
	text(b, (x0+x1)/2, y0+32, "n", "middle", c.Unit)
}

// niceStep is the next of 1, 2 and 5 times a power of ten.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(max(v, 1e-9))))
	for _, m := range []float64{1, 2, 5} {
		if v <= m*power {
			return m * power
		}
	}
	return 10 * power
}

// short writes thousands as k, and bytes' powers of two as Ki and Mi.
func short(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%dMi", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%dKi", n>>10)
	case n >= 1_000_000 && n%1_000_000 == 0:
		return fmt.Sprintf("%dM", n/1_000_000)
	case n >= 10_000 && n%1000 == 0:
		return fmt.Sprintf("%dk", n/1000)
	}
	return fmt.Sprint(n)
}
