package main

import (
	"bufio"
	"math"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
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

func TestBreakdownOfASample(t *testing.T) {
	t.Parallel()
	f := must.Get(os.Open("testdata/traces.txt"))(t)
	defer func() { _ = f.Close() }()
	parts := must.Get(breakdown(f))(t)
	want := map[string]float64{
		"system call: write a request to the app":                 110,
		"system call: read an answer from the app":                20,
		"system call: write acks to the broker":                   1500,
		"system call: read deliveries from the broker":            50,
		"memory: allocation and garbage collection":               30, // although the AMQP library asked for it
		"Go scheduler: switch goroutines, sleep and wake threads": 40,
		otherPart: 250,
	}
	if len(parts) != len(want) {
		t.Errorf("%d parts, want %d: %v", len(parts), len(want), parts)
	}
	for _, p := range parts {
		if math.Abs(p.Share-want[p.Name]/2000) > 1e-9 {
			t.Errorf("%q has %v, want %v", p.Name, p.Share, want[p.Name]/2000)
		}
	}
}

func TestLedgerBalances(t *testing.T) {
	t.Parallel()
	good := func() *run {
		return &run{
			Candidate: "x", Load: load{Messages: 10}, Stats: appStats{Received: 10, Distinct: 10},
			Left: map[string]int{"queue": 0, "retry-queue": 0, "dlq": 0},
		}
	}
	if err := good().balance(); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, c := range map[string]struct {
		change func(*run)
		says   string
	}{
		"lost":             {func(r *run) { r.Stats.Received, r.Stats.Distinct = 9, 9 }, "1 of 10 messages never reached the app"},
		"twice":            {func(r *run) { r.Stats.Received = 11 }, "1 duplicates"},
		"one for another":  {func(r *run) { r.Stats.Distinct = 9 }, "1 duplicates"},
		"unknown":          {func(r *run) { r.Stats.Received, r.Stats.Unknown = 11, 1 }, "1 requests that no message"},
		"left":             {func(r *run) { r.Left["queue"] = 3 }, "3 messages left in the queue"},
		"retried":          {func(r *run) { r.Left["retry-queue"] = 2 }, "2 messages left in the retry-queue"},
		"parked":           {func(r *run) { r.Left["dlq"] = 1 }, "1 messages left in the dlq"},
		"nothing received": {func(r *run) { r.Stats = appStats{} }, "10 of 10 messages"},
		"batches": {func(r *run) {
			r.Load.Item, r.Stats = "x", appStats{Received: 11, Distinct: 10}
		}, "11 messages reached the app, not 10"},
	} {
		r := good()
		c.change(r)
		if err := r.balance(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// child starts a shell and returns its id and the first line it prints.
func child(t *testing.T, script string) (pid int, line string) {
	t.Helper()
	c := exec.CommandContext(t.Context(), "sh", "-c", script)
	in := must.Get(c.StdinPipe())(t)
	out := must.Get(c.StdoutPipe())(t)
	must.Do(t, c.Start())
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() }) // the scripts end with their input
	line = must.Get(bufio.NewReader(out).ReadString('\n'))(t)
	return c.Process.Pid, strings.TrimSpace(line)
}

// burn is a shell loop that needs some CPU.
const burn = `i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done`

func TestCPUOfATreeIsThatOfAllItsProcesses(t *testing.T) {
	t.Parallel()
	pid, line := child(t, `{ (`+burn+`; echo done; read -r x) <&3 & } 3<&0; wait`)
	if line != "done" {
		t.Fatalf("the child says %q", line)
	}
	own := must.Get(cpuOf(pid))(t)
	all := must.Get(cpuOfTree(pid))(t)
	if all-own < 2*tick {
		t.Errorf("the tree has used %v, its root %v: what a child did is missing", all, own)
	}
	if own, err := cpuOf(os.Getpid()); err != nil || own < 0 {
		t.Errorf("this process: %v, %v", own, err)
	}
}
