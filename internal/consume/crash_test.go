package consume

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"sidecar/internal/crash"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// guard opens a journal for four workers.
func guard(t *testing.T) *crash.Guard {
	t.Helper()
	g := must.Get(crash.Open(crash.Options{Dir: t.TempDir(), Queue: "q", Workers: 4, Logger: slog.New(slog.DiscardHandler)}))(t)
	t.Cleanup(g.Close)
	return g
}

// TestAPanicIsACrash: a message that the sidecar itself fails over does not go round for ever. Without a way to retry
// the journal keeps the count.
func TestAPanicIsACrash(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*topology.Plan){"retried": nil, "no way to retry": func(p *topology.Plan) { p.Waits = nil }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s seen
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				s.Add(m.MessageID)
				if m.MessageID == "bad" {
					panic("a bug")
				}
				return answer(200)
			}), settings{crashes: guard(t), crashLimit: 3, change: change})
			r.publish("a", "bad", "b", "c")
			d := r.parked()
			if d.MessageId != "bad" || d.Headers["x-final-reason"] != "crash" || d.Headers["x-retry-crashes"] != int32(3) ||
				d.Headers["x-final-retry-count"] != int32(0) || d.Headers["x-final-error"] != crash.ErrFailed.Error() {
				t.Errorf("parked %s: %v", d.MessageId, d.Headers)
			}
			r.acked(3)
			r.counted(2, message.Requeue, message.ReasonPanic)
			if s.Of("bad") != 3 {
				t.Errorf("%d attempts, want 3", s.Of("bad"))
			}
		})
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

var errReset = errors.New("reset: the app closed the connection without an answer")

func reset() message.Outcome {
	o := answer(0)
	o.Failure, o.Err = message.FailureReset, errReset
	return o
}

// TestCrashesOfTheApp: the message that kills the app is parked, those that were there when it died are not.
func TestCrashesOfTheApp(t *testing.T) {
	t.Parallel()
	var s seen
	together := make(chan struct{})
	var arrivals sync.WaitGroup
	arrivals.Add(4)
	go func() { arrivals.Wait(); close(together) }()
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.MessageID == "warm" {
			return answer(200)
		}
		if s.Add(m.MessageID) == 1 {
			arrivals.Done()
			<-together
			return reset()
		}
		if m.MessageID == "bad" {
			return reset()
		}
		return answer(200)
	}), settings{crashes: guard(t), crashLimit: 2, appGone: true})
	warm := r.warm()
	r.publish("a", "bad", "b", "c")
	d := r.parked()
	if d.MessageId != "bad" || d.Headers["x-final-reason"] != "crash" || d.Headers["x-retry-crashes"] != int32(2) ||
		d.Headers["x-final-retry-count"] != int32(1) || d.Headers["x-final-error"] != errReset.Error() {
		t.Errorf("parked %s: %v", d.MessageId, d.Headers)
	}
	r.acked(warm + 3)
	r.counted(4, message.Retry, message.ReasonReset) // a broken connection is one, counted as ever
}

// warm sends messages until the rig dares to have all in flight.
func (r *rig) warm() (sent int) {
	r.t.Helper()
	for r.flow.Ramping() || sent == 0 {
		r.publish("warm")
		sent++
		r.acked(sent)
	}
	return sent
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

func TestDrainWithoutABroker(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	r.publish("a")
	r.acked(1)
	r.proxy.Refuse()
	r.eventually("the link is down", func() bool { return !r.Active() })
	c := r.Consumer
	r.drain(time.Second) // returns, which is the test
	if err := c.Serve(t.Context(), nil, nil); err != nil {
		t.Errorf("Serve after a drain: %v", err)
	}
}
