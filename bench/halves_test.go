//go:build nightly

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// measured runs each scenario of a half, smaller than usual.
func measured(t *testing.T, half string) *bench {
	t.Helper()
	b := newTestBench(t, half)
	b.retryDelay, b.batchSizes, b.paced = 20*time.Millisecond, []int{10}, 40
	for _, s := range scenarios() {
		if s.half == half {
			if err := s.run(b); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
	}
	return b
}

// shows writes the results and checks what the report says.
func shows(t *testing.T, b *bench, parts ...string) {
	t.Helper()
	var report bytes.Buffer
	must.Do(t, b.write(b.o, &report))
	for _, part := range parts {
		if !strings.Contains(report.String(), part) {
			t.Errorf("the report does not show %q:\n%s", part, report.String())
		}
	}
}

// TestRetries: each message fails as often as it should with both topologies, and no retry comes early.
func TestRetries(t *testing.T) {
	t.Parallel()
	b := measured(t, retried)
	s := b.retriesBy
	if len(s.Runs) != 2 || s.Runs[0].Candidate == s.Runs[1].Candidate {
		t.Fatalf("%d runs", len(s.Runs))
	}
	for _, r := range s.Runs {
		if r.Stats.Received != int64(r.Load.Messages*(failures+1)) || r.Late["min"] < -1 || r.Late["p50"] > r.Late["max"] {
			t.Errorf("%s: %+v", r.Candidate, r)
		}
	}
	shows(t, b, "| fanout |", "| native |")
}

// TestSeveral: each scenario of several queues measures what its name says.
func TestSeveral(t *testing.T) {
	t.Parallel()
	b := measured(t, several)
	s := b.severally
	one, seven := s.Idle["one sidecar"], s.Idle["seven sidecars"]
	if len(one) != 1 || len(seven) != 1 || one[0].RSS*2 > seven[0].RSS {
		t.Errorf("at rest: %+v and %+v", one, seven)
	}
	for _, runs := range [][]*run{s.Hanging, s.Two, s.Order} {
		if len(runs) != 2 || runs[0].Stats.MaxInflight != 50 || runs[1].Stats.MaxInflight != 50 {
			t.Errorf("%d runs", len(runs))
		}
	}
	shows(t, b, "| seven sidecars |", "| beside a path that hangs |", "| two queues |", "| order by key |")
	if f := s.figures(); len(f) != 5 {
		t.Errorf("%d figures", len(f))
	}
}

// TestBatches: each scenario of batches measures every format, and the loop by hand.
func TestBatches(t *testing.T) {
	t.Parallel()
	b := measured(t, batches)
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
	for i, name := range names {
		names[i] = "| " + name + " |"
	}
	shows(t, b, append(names, "| "+single+" |")...)
	for _, r := range found.Drained {
		r.Candidate = strings.Replace(r.Candidate, "10,", "100,", 1)
	}
	if f := found.figures(); len(f) != 4 {
		t.Errorf("%d figures", len(f))
	}
}
