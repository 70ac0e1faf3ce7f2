//go:build nightly

package main

import (
	"bytes"
	"strings"
	"testing"

	"sidecar/internal/testkit/must"
)

// TestSeveral: each scenario of several queues measures what its name says.
func TestSeveral(t *testing.T) {
	t.Parallel()
	b := newTestBench(t, several)
	for _, s := range scenarios() {
		if s.half == several {
			if err := s.run(b); err != nil {
				t.Fatalf("%s: %v", s.name, err)
			}
		}
	}
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
	var table bytes.Buffer
	must.Do(t, b.write(b.o, &table))
	for _, name := range []string{"seven sidecars", "beside a path that hangs", "two queues", "order by key"} {
		if !strings.Contains(table.String(), "| "+name+" |") {
			t.Errorf("the report does not show %s:\n%s", name, table.String())
		}
	}
	if f := s.figures(); len(f) != 5 {
		t.Errorf("%d figures", len(f))
	}
}
