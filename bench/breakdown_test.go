package main

import (
	"bufio"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

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

func TestBreakdownOfWhatIsNoProfile(t *testing.T) {
	t.Parallel()
	const line = "-----------+-----\n"
	for name, c := range map[string]struct{ in, says string }{
		"a value that is none":  {line + "  many   runtime.futex\n", "no sample"},
		"a value without frame": {line + "  10ms\n", "no frame"},
		"too long a line":       {line + "  10ms " + strings.Repeat("x", bufio.MaxScanTokenSize), bufio.ErrTooLong.Error()},
	} {
		if _, err := breakdown(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, in := range map[string]string{
		"nothing": "", "a heading": "File: x\nType: cpu\n", "an empty block": line + line, "no time": line + "  0s   runtime.futex\n",
	} {
		if parts, err := breakdown(strings.NewReader(in)); err != nil || parts != nil {
			t.Errorf("%s: %v, %v", name, parts, err)
		}
	}
}

func TestBreakdownOfAProfile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "cpu.pprof")
	f := must.Get(os.Create(file))(t)
	must.Do(t, pprof.StartCPUProfile(f))
	before, err := cpuOf(os.Getpid())
	for used := time.Duration(0); err == nil && used < 100*time.Millisecond; {
		var now time.Duration
		now, err = cpuOf(os.Getpid())
		used = now - before
	}
	pprof.StopCPUProfile()
	must.Do(t, errors.Join(err, f.Close()))
	parts := must.Get(breakdownOf(t.Context(), file))(t)
	sum := 0.0
	for _, p := range parts {
		sum += p.Share
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("the parts add up to %v: %v", sum, parts)
	}
	if _, err := breakdownOf(t.Context(), "testdata/traces.txt"); err == nil {
		t.Error("a text is no profile")
	}
}
