package deadletter

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// impatient is another process that hardly waits for the queue.
func (r *rig) impatient() *Queue {
	q := r.another()
	q.pause = time.Millisecond
	return q
}

// TestOneAtATime: of two that want the queue in the same moment, in two processes, never both get it, and every message
// is moved once.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		list := r.numbered(100)
		r.park(list...)
		var work sync.WaitGroup
		var done, refused atomic.Int64
		for range 4 {
			q := r.another()
			work.Go(func() {
				p, err := q.Redrive(context.Background(), Redrive{}, nil)
				done.Add(int64(p.Done))
				if errors.Is(err, ErrInUse) {
					refused.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if got := r.drain(r.plan.Queue); len(got) != len(list) || done.Load() != int64(len(list)) {
			t.Errorf("%d messages moved, %d said to be, %d refused", len(got), done.Load(), refused.Load())
		}
	}, "classic", "quorum without a limit")
}

// TestAStrangerConsumes: whatever else consumes the queue, it is left alone.
func TestAStrangerConsumes(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	ch := brokertest.Channel(t, r.url)
	must.Do(t, ch.Qos(1, 0, false))
	must.Get(ch.Consume(r.name, "", false, false, false, false, nil))(t)
	r2 := r.impatient()
	if _, err := r2.Browse(t.Context(), Filter{}, Scan{}, nil, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := r2.Browse(ctx, Filter{}, Scan{}, nil, nil); err == nil || errors.Is(err, ErrInUse) {
		t.Errorf("ended: %v", err)
	}
}

// TestLock: who does not get the lock touches no message, and the lock is gone as soon as an operation has ended.
func TestLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(3)...)
	other := brokertest.Channel(t, r.url)
	take := func() {
		t.Helper()
		must.Get(other.QueueDeclare(r.lockName(), false, false, true, false, amqp.Table{"x-queue-type": "classic"}))(t)
	}
	take()
	if _, err := r.impatient().Browse(t.Context(), Filter{}, Scan{}, nil, nil); !errors.Is(err, ErrInUse) {
		t.Errorf("locked by another connection: %v", err)
	}
	if d := brokertest.Get(t, r.url, r.name, time.Minute); d.Redelivered || d.MessageId != "m0001" {
		t.Errorf("%s was taken before", d.MessageId)
	}
	must.Get(other.QueueDelete(r.lockName(), false, false, false))(t)
	for range 3 {
		if sum, err := r.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil }); err != nil || sum.Total != 2 {
			t.Errorf("%+v, %v", sum, err)
		}
		take()
		must.Get(other.QueueDelete(r.lockName(), false, false, false))(t)
	}
}

// TestWithoutTheRightToLock: the guard alone keeps others out.
func TestWithoutTheRightToLock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		r.park(r.numbered(100)...)
		own := "^" + regexp.QuoteMeta(r.name) + "$"
		q, other := r.as(own, ".*", ".*"), r.as(own, ".*", ".*")
		other.pause = time.Millisecond
		ctx, cancel := context.WithCancel(t.Context())
		begun, ended := make(chan struct{}), make(chan struct{})
		begin := sync.OnceFunc(func() { close(begun) })
		go func() {
			defer close(ended)
			p, err := q.Redrive(ctx, Redrive{Rate: "20"}, func(p Progress) {
				if p.Done > 0 {
					begin()
				}
			})
			if !errors.Is(err, context.Canceled) || p.Done == 0 || p.Total != 100 {
				t.Errorf("%+v, %v", p, err)
			}
		}()
		<-begun
		if _, err := other.Browse(t.Context(), Filter{}, Scan{}, nil, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("while another works: %v", err)
		}
		cancel()
		<-ended
		other.pause = lockPause
		moved := brokertest.Ready(t, r.url, r.plan.Queue)
		sum, err := other.Browse(t.Context(), Filter{}, Scan{}, nil, func(*Message) error { return nil })
		if err != nil || moved == 0 || sum.Total != 100-moved || sum.Scanned != sum.Total {
			t.Errorf("%d moved, %+v, %v", moved, sum, err)
		}
	}, "classic", "quorum without a limit")
}
