package main

import (
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestFlagsThatAreWrong(t *testing.T) {
	t.Parallel()
	for _, args := range []string{
		"-against x", "-against =/x", "-against x=", "-only drained,unknown", "-only", "-runs 0", "-runs -1", "-n 0", "-n x", "-c 0",
		"-quick -docs", "-docs -only drained", "-docs -only produce,drained", "-docs -runs 1", "-docs -n 5", "-docs -c 1", "-docs -env GOGC=50", "-unknown", "surplus",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%q was taken", args)
		}
	}
}

func TestReplaceSection(t *testing.T) {
	t.Parallel()
	const page = "before\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nafter\n"
	got, err := replaceSection(page, "bench", "new\n")
	if want := "before\n<!-- bench:begin -->\n\nnew\n\n<!-- bench:end -->\nafter\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	if again, err := replaceSection(got, "bench", "new\n"); err != nil || again != got {
		t.Errorf("not the same a second time: %q, %v", again, err)
	}
	for _, page := range []string{"", "<!-- bench:begin -->", "<!-- bench:end -->", "<!-- bench:end --><!-- bench:begin -->"} {
		if _, err := replaceSection(page, "bench", "new"); err == nil {
			t.Errorf("%q has a section", page)
		}
	}
}

func TestVerdicts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		got, bar, stretch float64
		atLeast           bool
		want              string
	}{
		{0.31, 0.3, 0.2, false, "**missed**"},
		{0.3, 0.3, 0.2, false, "ok"},
		{0.2, 0.3, 0.2, false, "stretch"},
		{1.59, 1.6, 1.9, true, "**missed**"},
		{1.6, 1.6, 1.9, true, "ok"},
		{1.9, 1.6, 1.9, true, "stretch"},
		{10, 16, math.NaN(), false, "ok"},
	} {
		f := figure{got: spreadOf([]float64{c.got}), bar: c.bar, stretch: c.stretch, atLeast: c.atLeast}
		if got := f.verdict(); got != c.want {
			t.Errorf("%v, bar %v, stretch %v: %s, want %s", c.got, c.bar, c.stretch, got, c.want)
		}
		if err := missed([]figure{f}); (err != nil) != (c.want == "**missed**") {
			t.Errorf("%v, bar %v: %v", c.got, c.bar, err)
		}
	}
}

func TestFiguresAreOnlyThoseThatWereMeasured(t *testing.T) {
	t.Parallel()
	if f := (&result{}).figures(); len(f) != 0 {
		t.Errorf("of nothing: %v", f)
	}
	r := &result{Drained: []*run{
		{Candidate: "baseline", Load: load{Messages: 10_000}, Rate: 100},
		{Candidate: "sidecar", Load: load{Messages: 10_000}, Rate: 170, CPU: 0.2, Broker: 0.4},
	}}
	names := func() (out []string) {
		for _, f := range r.figures() {
			out = append(out, f.name)
		}
		return out
	}
	if slices.Contains(names(), "broker CPU per 10k messages") {
		t.Error("the broker's CPU is a figure although it is unknown")
	}
	r.Machine.BrokerCPU = true
	if !slices.Contains(names(), "broker CPU per 10k messages") {
		t.Errorf("figures: %v", names())
	}
	if text := r.markdown(r.figures()); !strings.Contains(text, "| drain rate ÷ hand-written consumer | 1.7 | ≥ 1.6 | ≥ 1.9 | ok |") {
		t.Errorf("the report:\n%s", text)
	}
	r.Quick = true
	if text := r.markdown(r.figures()); !strings.Contains(text, "quick look") {
		t.Error("a quick look does not say so")
	}
}
