package deadletter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
)

// TestWasReturned: only a quorum queue counts what is returned to it; a text is the count of another consumer.
func TestWasReturned(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		headers     amqp.Table
		redelivered bool
		want        bool
	}{
		{amqp.Table{"x-delivery-count": int64(1)}, true, true},
		{amqp.Table{"x-acquired-count": int64(1)}, true, true},
		{amqp.Table{"x-acquired-count": int64(1), "x-delivery-count": "4"}, true, true},
		{amqp.Table{"x-delivery-count": int64(0)}, false, false},
		{amqp.Table{"x-delivery-count": "4"}, true, false},
		{nil, true, false},
	} {
		d := broker.Delivery{}
		if d.Headers, d.Redelivered = c.headers, c.redelivered; wasReturned(&d) != c.want {
			t.Errorf("%v, redelivered %t: returned %t", c.headers, c.redelivered, !c.want)
		}
	}
}

// TestWhatStaysKeepsItsOrder also when the end of an operation meets messages that are on their way to it: every ack
// brings another one. Nor is any dropped: what a quorum queue takes back by itself it counts against a delivery limit.
func TestWhatStaysKeepsItsOrder(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(80)
		r.park(list...)
		for n := range 8 {
			r.redrive(Redrive{Selection: Selection{Limit: n + 1}})
		}
		r.kept(list[36:])

		list = r.numbered(300)
		for i := range list {
			if i%4 != 0 {
				list[i].Headers["x-final-status-code"] = int32(422)
			}
		}
		r.park(list...)
		for range 3 {
			r.redrive(Redrive{Selection: Selection{Filter: filter(t, "status", "503"), Limit: 20}})
		}
		r.kept(slices.DeleteFunc(list, func(m amqp.Publishing) bool {
			return m.Headers["x-final-status-code"] == int32(503) && m.MessageId <= list[236].MessageId
		}))
	})
}

// TestEndedAtAnyTime: whenever it comes, what is under way is finished and what stays is in its order, also when
// hardly anything had been taken, or much at once.
func TestEndedAtAnyTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(400)
		r.park(list...)
		moved := 0
		for i := range 9 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+2*i*i)*time.Millisecond)
			if i%2 == 0 { // a deadline is not a reason to break a call to the broker off either
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(1+2*i*i)*time.Millisecond, cancel)
			}
			p, err := r.Redrive(ctx, Redrive{Rate: float64(100 + 100*i)}, nil)
			if err == nil || p.Total > 0 && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%+v, %v", p, err)
			}
			_, _ = r.Browse(ctx, Filter{}, Scan{}, nil, func(*Message) error { return nil })
			cancel()
			moved += p.Done
		}
		if got := ids(r.drain(r.plan.Queue)); len(got) != moved || !slices.IsSorted(got) {
			t.Errorf("%d moved, not %d, or not in order: %q", len(got), moved, got)
		}
		r.kept(list[moved:])
	})
}
