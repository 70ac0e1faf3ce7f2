package consume

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
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

// failsOnce is a log handler that panics over the first line about a message.
type failsOnce struct {
	slog.Handler
	failed *atomic.Bool
}

func (h failsOnce) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "settled" && h.failed.CompareAndSwap(false, true) {
		panic("a bug")
	}
	return h.Handler.Handle(ctx, r)
}

// TestAPanicOverTheRecord: the message ends as it would have, once, and those behind it do, too.
func TestAPanicOverTheRecord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, failed := benchOptions(t, 1), &atomic.Bool{}
		o.Logger = slog.New(failsOnce{slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}), failed})
		c := New(o)
		t.Cleanup(func() { c.Drain(context.Background()) })
		s := benchSession(t, c)
		var a attempt
		for tag := range uint64(2) {
			d := benchDelivery(tag+1, nil, time.Now())
			s.receive(d)
			c.handle(&a, delivery{Delivery: d, session: s})
		}
		synctest.Wait()
		if n := testutil.ToFloat64(c.metrics.settled[message.Ack][message.ReasonSuccess]); n != 2 || !failed.Load() {
			t.Errorf("%v messages have ended, want 2", n)
		}
	})
}

// TestWaitInVainMindsTheDeliveryLimit: a copy whose earlier attempt has left no outcome goes back as the plan says. Another
// requeue could be the last one that the broker allows.
func TestWaitInVainMindsTheDeliveryLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := benchOptions(t, 1)
		o.Plan.RequeueLimit = 5
		c := New(o)
		t.Cleanup(func() { c.Drain(context.Background()) })
		lost, s := benchSession(t, c), benchSession(t, c)
		first := c.memory.Seen(benchDelivery(1, nil, time.Now()))
		lost.memory.Begin(&first)
		lost.memory.Lose(1)
		d := benchDelivery(1, amqp.Table{message.HeaderDeliveryCount: int64(5)}, time.Now())
		d.Redelivered = true
		var a attempt
		c.read(&a, delivery{Delivery: d, session: s})
		by := c.try(&a)
		if by.Kind != topology.SettleEarlier {
			t.Fatalf("%+v, want a wait", by)
		}
		lost.memory.Returns(first, topology.FinalRequeue, nil)
		if by = s.awaitEarlier(&a, by); by.Kind != topology.SettlePublish || by.Final != topology.FinalAck {
			t.Errorf("%+v, want a detour", by)
		}
	})
}
