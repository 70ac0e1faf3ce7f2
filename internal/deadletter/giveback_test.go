package deadletter

import (
	"slices"
	"testing"
)

// TestWhatStaysKeepsItsOrder also when the end of an operation meets messages that are on their way to it: every ack brings
// another one. Nor is any dropped: what a quorum queue takes back by itself it counts against a delivery limit.
func TestWhatStaysKeepsItsOrder(t *testing.T) {
	for kind, args := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, nil)
			r.redeclare(args)
			r.park(r.numbered(120)...)
			for n := 1; n <= 12; n++ {
				r.redrive(Redrive{Selection: Selection{Limit: n}})
			}
			if got := ids(r.drain(r.name)); len(got) != 120-78 || !slices.IsSorted(got) {
				t.Errorf("%d left, or not in order: %q", len(got), got)
			}

			list := r.numbered(600)
			for i := range list {
				if i%4 != 0 {
					list[i].Headers["x-final-status-code"] = int32(422)
				}
			}
			r.park(list...)
			for range 6 {
				r.redrive(Redrive{Selection: Selection{Filter: filter(t, "status", "503"), Limit: 20}})
			}
			if got := ids(r.drain(r.name)); len(got) != 600-120 || !slices.IsSorted(got) {
				t.Errorf("of a selection: %d left, or not in order: %q", len(got), got)
			}
		})
	}
}
