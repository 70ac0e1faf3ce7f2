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

// TestAddedLatency is the difference of two runs of one round, whichever was first.
func TestAddedLatency(t *testing.T) {
	t.Parallel()
	s := batchesResult{Rate: []paced{
		{Candidate: single, P50: 1, P99: 4}, {Candidate: "100, jsonl", P50: 12, P99: 24},
		{Candidate: "100, jsonl", P50: 13, P99: 30}, {Candidate: single, P50: 3, P99: 5},
	}}
	if got := s.added(p50); !slices.Equal(got, []float64{11, 10}) {
		t.Errorf("p50 %v", got)
	}
	if got := s.added(p99); !slices.Equal(got, []float64{20, 25}) {
		t.Errorf("p99 %v", got)
	}
}

// TestShares: a rate is divided by that of the candidate without what is measured, whichever ran first.
func TestShares(t *testing.T) {
	t.Parallel()
	for _, runs := range [][]*run{
		{{Candidate: "alone", Rate: 100}, {Candidate: "beside", Rate: 95}, {Candidate: "beside", Rate: 90}, {Candidate: "alone", Rate: 90}},
		{{Candidate: "beside", Rate: 95}, {Candidate: "alone", Rate: 100}, {Candidate: "alone", Rate: 90}, {Candidate: "beside", Rate: 90}},
	} {
		if got := share(runs); len(got) != 2 || got[0] != 0.95 || got[1] != 1 {
			t.Errorf("%v", got)
		}
	}
	if got := share(nil); got != nil {
		t.Errorf("%v of nothing", got)
	}
}

func TestTenthsOfALongRun(t *testing.T) {
	t.Parallel()
	l := &long{Run: relayRun{Load: pending{Rows: 1000}}, Series: []sample{
		{Seconds: 0, Sent: 0, RSS: 10}, {Seconds: 1, Sent: 100, RSS: 20, Claims: 10, ClaimMS: 20}, {Seconds: 5, Sent: 500, RSS: 22, Claims: 50, ClaimMS: 90},
		{Seconds: 9, Sent: 900, RSS: 19, Claims: 90, ClaimMS: 170}, {Seconds: 13, Sent: 1000, RSS: 21, Claims: 100, ClaimMS: 250},
	}}
	if rate, claim := l.between(0, 0.1); rate != 100 || claim != 2 {
		t.Errorf("first tenth: %v rows/s, %v ms a claim", rate, claim)
	}
	if rate, claim := l.between(0.9, 1); rate != 25 || claim != 8 {
		t.Errorf("last tenth: %v rows/s, %v ms a claim", rate, claim)
	}
	if g := l.growth(); g < 0.0999 || g > 0.1001 {
		t.Errorf("memory changes by %v", g)
	}
}
