package main

import (
	"math"
	"os"
	"testing"

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
