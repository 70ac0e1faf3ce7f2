package consume

import (
	"sync/atomic"
	"testing"
	"time"

	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestPublishedRetryProvesItsWay: where bindings are not declared, a retry is a publish, which returns when the binding
// is missing. The message is not lost, and it is not counted twice.
func TestPublishedRetryProvesItsWay(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, s.answers(500, 500, 500), settings{concurrency: 1, prefetch: 1, change: func(p *topology.Plan) { *p = *p.WithoutReject() }})
	r.eventually("active", func() bool { return r.Active() })
	wait := r.plan.Waits[0]
	must.Do(t, r.ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil))
	r.publish("a")
	r.eventually("the retry returns to us", func() bool { return r.unroutable.Load() > 0 })
	must.Do(t, r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil))
	r.acked(1)
	r.counted(3, message.Retry, message.ReasonServerError)
	if s.Of("a") != 4 {
		t.Errorf("%d attempts, want 4: nothing lost, nothing counted twice", s.Of("a"))
	}
}

// TestRejectWaitsForACheck of the topology, and then follows what it has found: here the retry queue is gone, so the
// message leaves by a publish, which is returned, instead of being lost. A drain ends the wait, and so does a check that
// does not end, as when its connection waits for the memory that the failed message holds.
func TestRejectWaitsForACheck(t *testing.T) {
	t.Parallel()
	for _, check := range []string{"ends", "is drained", "never ends"} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			var s seen
			var asked atomic.Int64
			var current atomic.Pointer[topology.Plan]
			checked := make(chan struct{})
			r := start(t, s.answers(500, 200), settings{current: current.Load, requestCheck: func() <-chan struct{} {
				select {
				case <-checked:
					return nil
				default:
					asked.Add(1)
					return checked
				}
			}, change: func(p *topology.Plan) { current.Store(p) }})
			r.eventually("active", func() bool { return r.Active() })
			wait := r.plan.Waits[0]
			must.Get(r.ch.QueueDelete(wait.Queue, false, false, false))(t)
			r.publish("a")
			r.eventually("a failed message that waits for a check", func() bool { return asked.Load() >= 1 && r.Inflight() == 0 })
			switch check {
			case "is drained":
				if d := r.drain(time.Millisecond); d.Interrupted != 1 {
					t.Errorf("drained %+v", d)
				}
				r.holds(r.plan.Queue, 1)
				return
			case "ends":
				current.Store(r.plan.WithoutReject())
				close(checked)
			}
			r.eventually("the publish is returned", func() bool { return r.unroutable.Load() > 0 })
			for _, q := range r.plan.Queues {
				must.Get(r.ch.QueueDeclare(q.Name, true, false, false, false, q.Args))(t)
			}
			must.Do(t, r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil))
			r.acked(1)
		})
	}
}

// TestRejectWaitsForOneCheck: each check takes longer than its result counts, so after each one another is needed. The
// message is rejected after the first check all the same.
func TestRejectWaitsForOneCheck(t *testing.T) {
	t.Parallel()
	var s seen
	var asked atomic.Int64
	r := start(t, s.answers(500, 200), settings{requestCheck: func() <-chan struct{} {
		asked.Add(1)
		checked := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(checked) })
		return checked
	}})
	r.publish("a")
	r.acked(1)
	if asked.Load() != 1 || s.Of("a") != 2 {
		t.Errorf("%d checks for one reject, %d attempts", asked.Load(), s.Of("a"))
	}
}
