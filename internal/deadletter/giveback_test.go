package deadletter

import (
	"context"
	"slices"
	"testing"
	"time"
)

// TestWhatStaysKeepsItsOrder also when the end of an operation meets messages that are on their way to it: every ack brings
// another one. Nor is any dropped: what a quorum queue takes back by itself it counts against a delivery limit.
func TestWhatStaysKeepsItsOrder(t *testing.T) {
	t.Parallel()
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

// TestToldToEndAtAnyTime: whenever it comes, what stays is in its order, also when hardly anything had been taken, or much
// at once.
func TestToldToEndAtAnyTime(t *testing.T) {
	t.Parallel()
	for kind, args := range kinds {
		t.Run(kind, func(t *testing.T) {
			r := newRig(t, nil)
			r.redeclare(args)
			list := r.numbered(1000)
			r.park(list...)
			moved := 0
			for i := range 12 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+i*i)*time.Millisecond)
				if i%2 == 0 { // a deadline is no reason to break a call to the broker off either
					cancel()
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(1+i*i)*time.Millisecond, cancel)
				}
				p, err := r.Redrive(ctx, Redrive{Rate: float64(100 + 100*i)}, nil)
				if err == nil {
					t.Errorf("%+v", p)
				}
				_, _ = r.Browse(ctx, Filter{}, Scan{}, func(*Message) error { return nil })
				cancel()
				moved += p.Done
			}
			got := ids(r.drain(r.plan.Queue))
			if got = append(got, ids(r.drain(r.name))...); len(got) != len(list) || !slices.IsSorted(got) {
				t.Errorf("%d messages, %d of them moved, or not in order: %q", len(got), moved, got)
			}
		})
	}
}
