//go:build nightly

package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestBatches: each scenario of batches measures every format, and the loop by hand.
func TestBatches(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, batches)
	b.batchSizes, b.paced = []int{10}, 40
	for _, s := range scenarios() {
		if s.half == batches {
			if err := s.run(b); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
	}
	found := b.inBatches
	names := candidatesOf(found.Drained)
	if len(found.Drained) != 5 || len(names) != 5 || len(found.Rate) != 2 {
		t.Fatalf("%d runs of %q, %d at the low rate", len(found.Drained), names, len(found.Rate))
	}
	for _, r := range found.Drained {
		// The sidecar begins with single messages, as after an outage of the app.
		if r.Load.Batch == 10 && (r.Stats.Held <= 10 || r.Stats.MaxInflight != 10) {
			t.Errorf("%s: the app held %d messages of %d requests: these are no batches", r.Candidate, r.Stats.Held,
				r.Stats.MaxInflight)
		}
	}
	var report bytes.Buffer
	must.Do(t, b.write(b.o, &report))
	for _, name := range append(slices.Clone(names), single) {
		if !strings.Contains(report.String(), "| "+name+" |") {
			t.Errorf("the report does not show %s:\n%s", name, report.String())
		}
	}
	for _, r := range found.Drained {
		r.Candidate = strings.Replace(r.Candidate, "10,", "100,", 1)
	}
	if f := found.figures(); len(f) != 4 {
		t.Errorf("%d figures", len(f))
	}
}
