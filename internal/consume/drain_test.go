package consume

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// TestAPanicIsRequeued: a message that the sidecar itself fails over is delivered again after a delay, uncounted, also
// at its last attempt. The process and the other messages go on.
func TestAPanicIsRequeued(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.Add(m.MessageID); m.MessageID == "bad" && s.Of("bad") < 3 {
			panic("a bug")
		}
		return answer(200)
	}), settings{change: func(p *topology.Plan) { p.MaxRetries = 0 }})
	r.publish("a", "bad", "b", "c")
	r.acked(4)
	r.counted(2, message.Requeue, message.ReasonPanic)
	if s.Of("bad") != 3 {
		t.Errorf("%d attempts, want 3", s.Of("bad"))
	}
}

// TestAPanicBesideTheWorkers: publishing happens on goroutines of its own.
func TestAPanicBesideTheWorkers(t *testing.T) {
	t.Parallel()
	var once sync.Once
	r := start(t, always(500), settings{publisher: func(p Publisher) Publisher {
		return publisherFunc(func(ctx context.Context, pub *message.Publication) error {
			once.Do(func() { panic("a bug") })
			return p.Publish(ctx, pub)
		})
	}, change: func(p *topology.Plan) { p.MaxRetries = 0 }})
	r.publish("a")
	if d := r.parked(); d.MessageId != "a" || !d.Redelivered && r.count(message.Requeue, message.ReasonPanic) != 1 {
		t.Errorf("parked %s after %d requeues", d.MessageId, r.count(message.Requeue, message.ReasonPanic))
	}
}

// drains is a drain with an hour's grace that has to end at once.
func (r *rig) drains() Drained {
	r.t.Helper()
	r.t.Cleanup(r.proxy.Refuse) // ends what the drain did not
	drained := make(chan Drained, 1)
	go func() { drained <- r.drain(time.Hour) }()
	r.eventually("the end of the drain", func() bool { return len(drained) == 1 })
	return <-drained
}

// TestDrainEndsWaits: what was delayed for an hour, waits for a rate, or for a batch that is not full, is given back.
// Nothing but the drain itself can end the wait. None of it was an attempt.
func TestDrainEndsWaits(t *testing.T) {
	t.Parallel()
	hourly := rate.NewLimiter(rate.Every(time.Hour), 1)
	hourly.Allow()
	for name, c := range map[string]struct {
		settings
		app              dispatcher
		handled, delayed int64
	}{
		"delayed": {app: inAnHour(425), handled: 2, delayed: 2},
		"rate":    {app: always(200), handled: 1, settings: settings{rates: []*rate.Limiter{hourly}}},
		"batch":   {app: always(200), handled: 2, settings: three()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, c.app, c.settings)
			r.publish("a", "b")
			r.holds(r.plan.Queue, 0)
			r.eventually("they wait", func() bool { return r.Received() == c.handled && r.Delayed() == c.delayed })
			if d := r.drains(); d.Interrupted != 0 || c.delayed == 0 && d.Returned != 2 {
				t.Errorf("drained %+v", d)
			}
			r.holds(r.plan.Queue, 2)
		})
	}
}

// TestDrainTriesAParkOnceMore: the pause of a park that failed ends with the drain. The message is parked by the next
// try, or given back, uncounted. Neither the end of an hour's pause nor that of the grace causes it.
func TestDrainTriesAParkOnceMore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		works       bool
		order       string
		interrupted int64
		queue, dlq  int
	}{
		"works again": {true, "", 0, 0, 1}, "fails again": {false, "", 1, 1, 0}, "in order": {false, "queue", 0, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &failing{}
			r := start(t, always(500), settings{
				maxRetries: 1, publisher: f.before, pause: time.Hour, order: c.order,
				change: func(p *topology.Plan) { p.InPlace = c.order != "" },
			})
			r.publish("a")
			r.eventually("a failed park", func() bool { return f.failed.Load() == 1 && r.Unpublished() == 1 })
			f.works.Store(c.works)
			if d := r.drains(); c.order == "" && d.Interrupted != c.interrupted || f.failed.Load() > 2 {
				t.Errorf("drained %+v after %d tries", d, f.failed.Load())
			}
			r.holds(r.plan.Queue, c.queue)
			r.holds(r.dlq(), c.dlq)
		})
	}
}

// TestStopPausesAfterTheLastNack: quorum queues undo a nack that the end of its channel follows at once.
func TestStopPausesAfterTheLastNack(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"session lives": false, "session lost": true} {
		synctest.Test(t, func(t *testing.T) {
			c, a := New(benchOptions(t, 1)), &counting{}
			done := make(chan struct{})
			r := &session{c: c, leaving: context.Background(), done: done, memory: c.memory.Session(1)}
			r.settler = newSettler(a, 1, c.metrics, r.memory)
			c.background.Go(r.settler.run)
			r.receive(benchDelivery(1, nil, time.Now()))
			closed := make(chan struct{})
			go func() { r.close(); close(closed) }()
			synctest.Wait()
			r.hand(ending{tag: 1, action: message.Release, reason: message.ReasonUndispatched, final: topology.FinalRequeue})
			synctest.Wait()
			select {
			case <-closed:
				t.Errorf("%s: the stop ended at once after the last of %d nacks", name, a.frames)
			default:
			}
			begun := time.Now()
			if lost {
				close(done)
			}
			<-closed
			if took := time.Since(begun); a.frames != 1 || took > nackGrace || lost != (took == 0) {
				t.Errorf("%s: the stop ended %v after %d nacks", name, took, a.frames)
			}
			c.Drain(t.Context())
		})
	}
}
