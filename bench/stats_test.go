package main

import (
	"math"
	"slices"
	"testing"
)

func TestSpread(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   spread
	}{
		{nil, spread{}},
		{[]float64{7}, spread{7, 7, 7, 1}},
		{[]float64{3, 1, 2}, spread{2, 1, 3, 3}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4, 4}},
	} {
		given := slices.Clone(c.values)
		if got := spreadOf(given); got != c.want {
			t.Errorf("spread of %v: %+v", c.values, got)
		}
		if !slices.Equal(given, c.values) { // ratios pair by position
			t.Errorf("%v was sorted in place", c.values)
		}
	}
}

func TestQuantile(t *testing.T) {
	t.Parallel()
	v := []float64{0, 10, 20, 30, 40}
	for q, want := range map[float64]float64{0: 0, 0.25: 10, 0.5: 20, 0.9: 36, 1: 40} {
		if got := quantile(v, q); math.Abs(got-want) > 1e-9 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
	if quantile(nil, 0.5) != 0 || quantile([]float64{5}, 0.99) != 5 {
		t.Error("none or one value")
	}
}

func TestFit(t *testing.T) {
	t.Parallel()
	base, slope := fit([]float64{0, 100, 200, 400}, []float64{15, 17, 19, 23})
	if math.Abs(base-15) > 1e-9 || math.Abs(slope-0.02) > 1e-9 {
		t.Errorf("an exact line: %v + %v x", base, slope)
	}
	if base, slope = fit([]float64{3, 3}, []float64{1, 3}); base != 2 || slope != 0 {
		t.Errorf("points above one another: %v + %v x", base, slope)
	}
	if base, slope = fit(nil, nil); base != 0 || slope != 0 {
		t.Errorf("no points: %v + %v x", base, slope)
	}
}

func TestRatiosArePairedByRound(t *testing.T) {
	t.Parallel()
	runs := []*run{
		{Candidate: "baseline", Rate: 10}, {Candidate: "sidecar", Rate: 20},
		{Candidate: "sidecar", Rate: 10}, {Candidate: "baseline", Rate: 4},
	}
	got := ratios(each(of(runs, "sidecar"), rateOf), each(of(runs, "baseline"), rateOf))
	if !slices.Equal(got, []float64{2, 2.5}) {
		t.Errorf("ratios: %v", got)
	}
	if got := ratios([]float64{1, 2}, []float64{2}); !slices.Equal(got, []float64{0.5}) {
		t.Errorf("a round without its pair: %v", got)
	}
}

// points makes a curve of medians at xs.
func points(name string, xs []int, cpu ...float64) *curve {
	c := &curve{Name: name, Unit: "u"}
	for i, x := range xs {
		p := point{X: x, CPU: spreadOf([]float64{cpu[i]})}
		if name == "headers" {
			p.Load.Headers = x
		}
		c.Points = append(c.Points, p)
	}
	return c
}

func TestWorstIsRelativeToTheReference(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		curve *curve
		at    int
		want  float64
	}{
		{points("backlog", []int{10, 100, 1000}, 10, 11, 9.5), 10, 0.1},
		{points("backlog", []int{10, 100, 1000}, 10, 10.4, 8), 10, -0.2},
		{points("concurrency", []int{1, 50, 1000}, 20, 10, 9), 50, 1},
		{points("body", []int{0, 1024}, 5, 10), 1024, -0.5},
		{points("body", []int{0, 2048}, 5, 10), 0, 1},
		{points("backlog", []int{10, 100}, 0, 10), 10, 0}, // too short a run for any CPU time
	} {
		if got := c.curve.worst(); math.Abs(got-c.want) > 1e-9 || c.curve.reference().X != c.at {
			t.Errorf("%s: %v from %d, want %v from %d", c.curve.Name, got, c.curve.reference().X, c.want, c.at)
		}
	}
}

func TestBendIsTheDistanceFromTheLine(t *testing.T) {
	t.Parallel()
	c := points("headers", []int{0, 8, 16}, 10, 12, 14)
	bytes := float64(load{Headers: 8}.headerBytes())
	c.Base, c.PerByte = 10, 2/bytes
	if got := c.bend(); got > 1e-9 {
		t.Errorf("a straight line bends by %v", got)
	}
	c.Points[1].CPU.Median = 15
	if got := c.bend(); math.Abs(got-0.25) > 1e-9 {
		t.Errorf("bends by %v, want 0.25", got)
	}
	c.Base, c.PerByte = 0, 0
	if got := c.bend(); got != 0 {
		t.Errorf("no line bends by %v", got)
	}
}

func TestHeaderBytesAreThoseOfNamesAndValues(t *testing.T) {
	t.Parallel()
	if n := (load{Headers: 2}).headerBytes(); n != 2*len("x-h-00value-00-of-0") {
		t.Errorf("%d bytes", n)
	}
	for i := range 20 { // every message of a load weighs the same
		if m := (load{Headers: 64, Body: 7}).message(i); len(m.Headers) != 64 || len(m.Body) != 7 {
			t.Errorf("message %d: %d headers, %d bytes", i, len(m.Headers), len(m.Body))
		}
	}
}

func TestNiceStep(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]float64{0.7: 1, 1: 1, 1.2: 2, 2.1: 5, 5.1: 10, 34: 50, 0.013: 0.02} {
		if got := niceStep(v); math.Abs(got-want) > 1e-9 {
			t.Errorf("step for %v: %v, want %v", v, got, want)
		}
	}
	if got := niceStep(0); got <= 0 {
		t.Errorf("step for 0: %v", got)
	}
}

func TestShort(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]string{
		0: "0", 50: "50", 1000: "1000", 1024: "1Ki", 128 << 10: "128Ki", 1 << 20: "1Mi", 10_000: "10k", 1_000_000: "1M",
	} {
		if got := short(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for v, want := range map[float64]string{
		0: "0", 1.6: "1.6", 0.3: "0.3", 0.1234: "0.123", 0.0001: "0", 2.9999: "3", 12.34: "12.3", 50: "50", 123.4: "123", 15342.7: "15343",
	} {
		if got := number(v); got != want {
			t.Errorf("%v: %q, want %q", v, got, want)
		}
	}
}
