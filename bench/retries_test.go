//go:build nightly

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// TestRetries: each message fails as often as it should with both topologies, and no retry comes early.
func TestRetries(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, retried)
	b.retryDelay = 20 * time.Millisecond
	must.Do(t, b.retries())
	s := b.retriesBy
	if len(s.Runs) != 2 || s.Runs[0].Candidate == s.Runs[1].Candidate {
		t.Fatalf("%d runs", len(s.Runs))
	}
	for _, r := range s.Runs {
		if r.Stats.Received != int64(r.Load.Messages*(failures+1)) || r.Late["min"] < -1 || r.Late["p50"] > r.Late["max"] {
			t.Errorf("%s: %+v", r.Candidate, r)
		}
	}
	var table bytes.Buffer
	must.Do(t, b.write(b.o, &table))
	for _, name := range []string{"fanout", "native"} {
		if !strings.Contains(table.String(), "| "+name+" |") {
			t.Errorf("the report does not show %s:\n%s", name, table.String())
		}
	}
}
