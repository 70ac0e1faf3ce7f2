package deadletter

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// back parks again whatever comes to the service, until stop: an app that fails everything.
func (r *rig) back() (stop func()) {
	ch := brokertest.Channel(r.t, r.url)
	return r.settling(func(_ int, d *amqp.Delivery) *message.VerdictReply {
		m := r.parked(d.MessageId, amqp.Table{"x-redriven-count": d.Headers["x-redriven-count"]})
		must.Do(r.t, ch.PublishWithContext(r.t.Context(), "", r.name, true, false, m))
		return nil
	})
}

// mixed parks n messages, of which every so many has another status.
func (r *rig) mixed(n, every int, status int32) (those, others []amqp.Publishing) {
	list := r.numbered(n)
	for i, m := range list {
		if i%every == every-1 {
			m.Headers["x-final-status-code"] = status
			those = append(those, m)
		} else {
			others = append(others, m)
		}
	}
	r.park(list...)
	return those, others
}

// TestRounds: an operation that takes long requeues everything now and then and goes on where it was, so that the broker
// does not lose its patience. Nothing is moved twice or left out, whatever stays and whatever returns meanwhile.
func TestRounds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, r *rig, _ string) {
		staying, moving := r.mixed(90, 3, 422)
		r.hold = 250 * time.Millisecond
		p, err := r.Redrive(t.Context(), Redrive{Selection: Selection{Filter: filter(t, "status", "503")}, Rate: 60}, nil)
		if err != nil || p.Total != 90 || p.Scanned != 90 || p.Matched != 60 || p.Done != 60 || p.Failed != 0 {
			t.Errorf("%+v, %v", p, err)
		}
		r.holds(r.plan.Queue, moving)
		r.kept(staying)

		r.park(append(moving, staying...)...)
		stop := r.back()
		p, err = r.Redrive(t.Context(), Redrive{Rate: 100}, nil)
		if err != nil || p.Total != 90 || p.Done != 90 {
			t.Errorf("all of them, and all return: %+v, %v", p, err)
		}
		brokertest.WaitReady(t, r.url, r.name, 90)
		stop()
		for _, d := range r.drain(r.name) {
			if n := number(d.Headers, "x-redriven-count"); n != 1 {
				t.Errorf("%s was moved %d times", d.MessageId, n)
			}
		}
	}, "classic", "quorum with 20")
}

// TestNothingIsHeldBetween: with a rate so slow that the broker would lose its patience between two messages, nothing
// holds anything until the next may go, and others may read. The canary goes on through all of it.
func TestNothingIsHeldBetween(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(4)...)
	r.hold = 50 * time.Millisecond
	defer r.settling(func(int, *amqp.Delivery) *message.VerdictReply { return &message.VerdictReply{Outcome: "ack"} })()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begun, begin := context.WithCancel(ctx)
	var looks sync.WaitGroup
	looks.Go(func() {
		q := r.another()
		<-begun.Done() // an operation is refused while the queue is read
		brokertest.Eventually(t, time.Minute, "a read in between", func() bool {
			sum, err := q.Browse(ctx, Filter{}, Scan{}, nil, func(*Message) error { return nil })
			if err == nil {
				time.Sleep(200 * time.Millisecond) // the operation needs the queue for its own rounds, too
			}
			return err == nil && sum.Total > 0 && sum.Total < 4
		})
	})
	p, err := r.Redrive(t.Context(), Redrive{Rate: 1, Canary: 3}, func(Progress) { begin() })
	begin()
	looks.Wait()
	if err != nil || p.Done != 4 || p.Scanned != 4 || p.Canary.Good != 3 || !p.Canary.Done {
		t.Errorf("%+v, %v", p, err)
	}
	r.park(r.numbered(2)...)
	q := r.another()
	q.hold = 50 * time.Millisecond
	var moved sync.Once
	if p, err = q.Redrive(ctx, Redrive{Rate: 0.01}, func(p Progress) {
		if p.Done > 0 {
			moved.Do(cancel)
		}
	}); !errors.Is(err, context.Canceled) || p.Done != 1 {
		t.Errorf("ended between two messages: %+v, %v", p, err)
	}
	brokertest.WaitReady(t, r.url, r.name, 1)
}

// TestNoRoundForNothing: the last message that moves ends an operation, however slow its rate: nothing has to wait for
// the time of another one.
func TestNoRoundForNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.park(r.numbered(3)...)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // the time of the next message is in an hour
	defer cancel()
	if p, err := r.Redrive(ctx, Redrive{Selection: Selection{Filter: filter(t, "id", "m0001")}, Rate: 1.0 / 3600}, nil); err != nil || p.Done != 1 {
		t.Errorf("%+v, %v", p, err)
	}
}
