package consume

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/crash"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
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

// TestAPanicAfterTheAttempt must not end the process either.
func TestAPanicAfterTheAttempt(t *testing.T) {
	t.Parallel()
	o := benchOptions(t, 1)
	log := &apptest.Log{}
	o.Logger, o.Policy.CrashHold, o.Dispatcher = telemetry.NewLogger(log, "debug", "json"), time.Millisecond, always(500)
	c := New(o)
	t.Cleanup(func() { c.Drain(context.Background()) })
	r := benchSession(t, c)
	r.plan = nil
	d := benchDelivery(1, nil, time.Now())
	r.receive(d)
	var rec record
	rec.begin(delivery{d, r, nil})
	c.guard(&rec, c.handle)
	r.outstanding.Wait()
	if !strings.Contains(log.String(), `"msg":"panic"`) || !strings.Contains(log.String(), `"reason":"panic"`) {
		t.Errorf("log: %s", log)
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
