package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/crash"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// guard opens a journal for four workers.
func guard(t *testing.T, dir string) *crash.Guard {
	t.Helper()
	g, err := crash.Open(crash.Options{Dir: dir, Queue: "q", Workers: 4, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// died is the directory of a process that died while it POSTed a message.
func died(t *testing.T, m *message.Message) string {
	t.Helper()
	dir, left := t.TempDir(), t.TempDir()
	guard(t, dir).Around(dispatcher(func(context.Context, *message.Message) message.Outcome {
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%v %v", files, err)
		}
		b, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(left, filepath.Base(files[0])), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return answer(200)
	}), nil).Dispatch(t.Context(), m)
	return left
}

// survivor publishes a message that says of itself that it has been through one crash: such a one is handled alone.
func (r *rig) survivor(id string) {
	r.t.Helper()
	r.eventuallyDeclared()
	brokertest.Publish(r.t, r.ch, "", r.plan.Queue, amqp.Publishing{
		MessageId: id, Body: []byte(id), Headers: amqp.Table{message.HeaderCrashes: int32(1)},
	})
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
			}), settings{crashes: guard(t, t.TempDir()), crashLimit: 3, change: change})
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
		return publisher(func(ctx context.Context, pub *message.Publication) error {
			once.Do(func() { panic("a bug") })
			return p.Publish(ctx, pub)
		})
	}, change: func(p *topology.Plan) { p.MaxRetries = 0 }})
	r.publish("a")
	if d := r.parked(); d.MessageId != "a" || !d.Redelivered && r.count(message.Requeue, message.ReasonPanic) != 1 {
		t.Errorf("parked %s after %d requeues", d.MessageId, r.count(message.Requeue, message.ReasonPanic))
	}
}

// publisher wraps the real one.
type publisher func(ctx context.Context, p *message.Publication) error

func (p publisher) Publish(ctx context.Context, pub *message.Publication) error { return p(ctx, pub) }

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
	}), settings{crashes: guard(t, t.TempDir()), crashLimit: 2, appGone: true})
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

// TestABrokenConnectionIsNotACrash while the app still accepts connections.
func TestABrokenConnectionIsNotACrash(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome { return reset() }),
		settings{crashes: guard(t, t.TempDir()), crashLimit: 1, maxRetries: 1})
	r.publish("a")
	if d := r.parked(); d.Headers["x-final-reason"] != "max_retries" || d.Headers["x-retry-crashes"] != nil {
		t.Errorf("parked: %v", d.Headers)
	}
}

// TestASuspectIsParkedWithoutAnotherTry at its limit of crashes; below it the count is published first.
func TestASuspectIsParkedWithoutAnotherTry(t *testing.T) {
	t.Parallel()
	for limit, tries := range map[int]int{2: 0, 3: 1} {
		t.Run(fmt.Sprintf("limit %d", limit), func(t *testing.T) {
			t.Parallel()
			var s seen
			in := &message.Message{MessageID: "bad", Body: []byte("bad")}
			var r *rig
			ready := make(chan struct{})
			d := dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				<-ready
				if s.Add(m.MessageID); m.Crashes != 2 {
					t.Errorf("%d crashes, want 2", m.Crashes)
				}
				return answer(200)
			})
			// The name of the queue, which is the routing key, is known only now.
			r = start(t, d, settings{change: func(p *topology.Plan) { in.RoutingKey = p.Queue }, crashLimit: limit, guard: func() *crash.Guard {
				return guard(t, died(t, in))
			}})
			close(ready)
			r.survivor("bad")
			if tries == 0 {
				if d := r.parked(); d.Headers["x-final-reason"] != "crash" || d.Headers["x-retry-crashes"] != int32(2) ||
					d.Headers["x-final-error"] != crash.ErrEnded.Error() {
					t.Errorf("parked: %v", d.Headers)
				}
			} else {
				r.acked(1)
				r.counted(1, message.Requeue, message.ReasonCrash)
			}
			if s.Of("bad") != tries {
				t.Errorf("%d tries, want %d", s.Of("bad"), tries)
			}
		})
	}
}

// hanging starts a rig in which the survivor "first" is being POSTed and "second" waits for its turn.
func hanging(t *testing.T, s *seen) (r *rig, let chan struct{}, warm int) {
	t.Helper()
	let = make(chan struct{})
	r = start(t, dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
		s.Add(m.MessageID)
		if m.MessageID == "first" {
			select {
			case <-let:
			case <-ctx.Done():
				return message.Outcome{Failure: message.FailureInterrupted, Err: context.Cause(ctx), RetryAfter: -1}
			}
		}
		return answer(200)
	}), settings{crashes: guard(t, t.TempDir()), crashLimit: 2})
	warm = r.warm()
	r.survivor("first")
	r.eventually("the first", func() bool { return s.Of("first") == 1 })
	r.survivor("second")
	r.eventually("both in flight", func() bool { return r.Inflight() == 2 })
	return r, let, warm
}

func TestWaitingForATurnEndsWithTheDrain(t *testing.T) {
	t.Parallel()
	var s seen
	r, _, _ := hanging(t, &s)
	// An interruption during the cancellation ends the session: then the second may also be returned as not begun.
	r.Stop()
	r.eventually("no consumer", func() bool { return !r.Active() })
	if d := r.drain(0); d.Interrupted != 2 || s.Of("second") != 0 {
		t.Errorf("interrupted %d, want 2; the second was POSTed %d times, want 0", d.Interrupted, s.Of("second"))
	}
	r.holds(r.plan.Queue, 2)
}

// TestWaitingForATurnOutlastsTheSession: what the broker delivers again must not be POSTed by the old session too.
func TestWaitingForATurnOutlastsTheSession(t *testing.T) {
	t.Parallel()
	var s seen
	r, let, warm := hanging(t, &s)
	r.proxy.Cut()
	r.eventually("the old second has ended", func() bool { return testutil.ToFloat64(r.metrics().stale) == 1 })
	close(let)
	r.acked(warm + 2)
	if s.Of("first") != 1 || s.Of("second") != 1 {
		t.Errorf("the first was POSTed %d times and the second %d times, want 1", s.Of("first"), s.Of("second"))
	}
}
