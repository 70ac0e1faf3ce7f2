package deadletter

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

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

		list = r.numbered(160)
		for i := range list {
			if i%4 != 0 {
				list[i].Headers["x-final-status-code"] = int32(422)
			}
		}
		r.park(list...)
		for range 3 {
			r.redrive(Redrive{Selection: Selection{Filter: filter(t, "status", "503"), Limit: 10}})
		}
		r.kept(slices.DeleteFunc(list, func(m amqp.Publishing) bool {
			return m.Headers["x-final-status-code"] == int32(503) && m.MessageId <= list[116].MessageId
		}))
	}, "classic", "quorum without a limit", "quorum that names none", "quorum with 3")
}

// TestEndedAtAnyTime: whenever it comes, what is under way is finished and what stays is in its order, also when
// hardly anything had been taken, or much at once.
func TestEndedAtAnyTime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(200)
		r.park(list...)
		moved := 0
		for i := range 7 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(1+2*i*i)*time.Millisecond)
			if i%2 == 0 { // a deadline is not a reason to break a call to the broker off either
				cancel()
				ctx, cancel = context.WithCancel(t.Context())
				time.AfterFunc(time.Duration(1+2*i*i)*time.Millisecond, cancel)
			}
			p, err := r.Redrive(ctx, Redrive{Rate: Rate(strconv.Itoa(100 + 100*i))}, nil)
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
	}, "classic", "quorum without a limit", "quorum with 3")
}

// TestBusyQueue: the broker counts nothing in a quorum queue that does not answer it in time. A read that believed
// it would take a message and give it back, which counts.
func TestBusyQueue(t *testing.T) {
	t.Parallel()
	r := newRig(t, quorum)
	r.park(r.numbered(3)...)
	brokertest.Busy(t, r.name)
	if d, err := r.Depth(t.Context()); d.Ready != 3 || err != nil {
		t.Errorf("%+v, %v", d, err)
	}
	brokertest.Busy(t, r.name)
	if views, sum := r.browse(Filter{}, Scan{}); len(views) != 3 || sum.Total != 3 {
		t.Errorf("%d messages, %+v", len(views), sum)
	}
}

// TestQueueWithoutLeader: a quorum queue whose leader is away says that it holds nothing. That is not the end of a redrive:
// it goes on when the leader is back, or reports that it was stopped.
func TestQueueWithoutLeader(t *testing.T) {
	t.Parallel()
	r := newRig(t, quorum)
	r.park(r.numbered(200)...)
	leader := func(call string) {
		t.Helper()
		brokertest.Leader(t, r.name, "ok = sys:"+call+"(L)")
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	go func() {
		defer close(ended)
		p, err := r.Redrive(context.Background(), Redrive{Rate: "100"}, func(p Progress) {
			if p.Done > 0 {
				begin()
			}
		})
		if err == nil && p.Done != 200 {
			t.Errorf("succeeded with %+v", p)
		}
	}()
	<-begun
	leader("suspend")
	select { // the reader asks after a second, and the broker asks the leader for five
	case <-ended:
	case <-time.After(9 * time.Second):
	}
	leader("resume")
	<-ended
	r.nothingLost(200)
}
