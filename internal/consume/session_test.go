package consume

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/amqpwire"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/message"
)

// TestCopyWaitsForItsVerdict: the copy waits for the attempt of a lost session. When its own session is lost, too, the
// next copy waits. Without a verdict it is POSTed. A drain interrupts both.
func TestCopyWaitsForItsVerdict(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"answered": 1, "away": 2, "drained": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			var s seen
			r := start(t, dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
				first := s.Add(m.MessageID) == 1
				select {
				case <-hold:
					if first && name == "away" {
						return message.Outcome{Failure: message.FailureRefused, RetryAfter: -1}
					}
					return answer(200)
				case <-ctx.Done():
					return message.Outcome{Failure: message.FailureInterrupted, RetryAfter: -1}
				}
			}), settings{concurrency: 2, prefetch: 2})
			r.publish("A")
			r.eventually("A in flight", func() bool { return s.Of("A") == 1 })
			for n := range 2 {
				r.proxy.Cut()
				r.eventually("the copy waits", func() bool {
					return testutil.ToFloat64(r.metrics().received[1]) == float64(n+1) && r.Inflight() == 1
				})
			}
			if name != "drained" {
				close(hold)
				r.acked(1)
			} else {
				r.drain(0)
				r.holds(r.plan.Queue, 1)
			}
			if s.Of("A") != attempts {
				t.Errorf("%d attempts, want %d", s.Of("A"), attempts)
			}
		})
	}
}

func TestDeliveriesOfALostSessionAreNotPosted(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		s.Add(m.MessageID)
		<-hold
		return answer(200)
	}), settings{concurrency: 2, prefetch: 20})
	r.publish(bodies(20)...)
	r.eventually("in flight", func() bool { return r.Inflight() >= 1 })
	before := s.Total()
	r.proxy.Refuse()
	r.eventually("the session is gone", func() bool { return !r.Active() })
	if n := s.Total(); n > 2 {
		t.Errorf("%d POSTs (%d before the cut), at most the concurrency of 2 may be under way", n, before)
	}
	close(hold)
	r.proxy.Restore(t)
	r.acked(20)
	r.window(20) // as the first one's
}

// window waits until the only consumer has that prefetch, which is not the number of a character: Erlang prints [10] as text.
func (r *rig) window(n int) {
	r.t.Helper()
	r.eventually(fmt.Sprintf("one consumer with a prefetch of %d", n), func() bool {
		return brokertest.Eval(r.t, fmt.Sprintf("[proplists:get_value(prefetch_count, C) || C <- rabbit_amqqueue:consumers_all(<<%q>>)]",
			brokertest.VhostName(r.t))) == fmt.Sprintf("[%d]", n)
	})
}

// TestWindowByDuration: it is small until attempts are measured, and while they take long. What it holds then goes back.
func TestWindowByDuration(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 2} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			var took atomic.Int64
			d := &batched{answer: func([]*message.Message) (message.Outcome, []message.Outcome) {
				return message.Outcome{Status: 200, RetryAfter: -1, At: time.Now(), Elapsed: time.Duration(took.Load())}, nil
			}}
			r := start(t, d, settings{concurrency: 2, prefetch: 6, longPrefetch: 4, batch: Batch{Size: size, Wait: time.Millisecond, Bytes: 1 << 20}})
			r.window(4)
			r.publish(bodies(60)...)
			r.window(6)
			took.Store(int64(time.Minute))
			r.publish(bodies(2)...)
			r.window(4)
			r.acked(62)
		})
	}
}

func TestDelaysAndParksOfALostSessionEnd(t *testing.T) {
	t.Parallel()
	f := &failing{}
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.MessageID == "sleep" {
			return inAnHour(425)(nil, m)
		}
		return answer(500)
	}), settings{maxRetries: 1, publisher: f.before})
	r.publish("sleep", "park")
	r.eventually("a delayed message and a stuck park", func() bool {
		return r.Delayed() == 1 && testutil.ToFloat64(r.metrics().parkFailures) > 0
	})
	r.proxy.Refuse()
	r.eventually("both are given up", func() bool {
		return r.Delayed() == 0 && testutil.ToFloat64(r.metrics().stale) == 2
	})
}

// ordered is a session in virtual time, without a broker, of which a key can be read.
func ordered(t *testing.T, d dispatcher, change func(*Options)) (*Consumer, *session) {
	t.Helper()
	o := benchOptions(t, 2)
	o.OrderBy, o.Dispatcher, o.Plan.InPlace = byKey, d, true
	change(&o)
	c := New(o)
	t.Cleanup(func() { c.Drain(context.Background()) })
	return c, benchSession(t, c)
}

// returns pumps deliveries until the session has to return everything.
func (s *session) returns(t *testing.T, list ...*broker.Delivery) {
	t.Helper()
	deliveries := amqpwire.NewDeliveries(0)
	for _, d := range list {
		deliveries.Add(d)
	}
	if err := s.take(deliveries); err != errPaused { //nolint:errorlint // it is itself
		t.Error(err)
	}
	s.leftover()
	synctest.Wait()
	s.c.order.drop(s)
	if n := len(s.c.order.all); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// TestOldDeliveriesReturn: no delivery is handled that the broker may take away soon, or before its attempt ends.
func TestOldDeliveriesReturn(t *testing.T) {
	t.Parallel()
	for attempt, takes := range map[time.Duration]time.Duration{0: maxStay + time.Second, 20 * time.Minute: 9 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			c, s := ordered(t, func(context.Context, *message.Message) message.Outcome {
				attempts++
				time.Sleep(takes)
				return answer(200)
			}, func(o *Options) { o.OrderBy, o.Attempt = "queue", attempt })
			now := time.Now()
			s.returns(t, benchDelivery(1, nil, now), benchDelivery(2, nil, now), benchDelivery(3, nil, now))
			if attempts != 1 || c.counts.returned.Load() != 2 {
				t.Errorf("%d attempts, %d returned", attempts, c.counts.returned.Load())
			}
		})
	}
}

// TestNothingPassesALostKey: behind a delivery without headers, for want of memory, nothing is handled; everything
// returns after a while.
func TestNothingPassesALostKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		_, s := ordered(t, func(context.Context, *message.Message) message.Outcome {
			attempts++
			return answer(200)
		}, func(*Options) {})
		began, key := time.Now(), amqp.Table{"key": "a"}
		lost := benchDelivery(2, nil, began)
		lost.Missing, lost.MissingWhy = 1, broker.ErrNoMemory
		s.returns(t, benchDelivery(1, key, began), lost, benchDelivery(3, key, began))
		if attempts != 1 || time.Since(began) < missingPause {
			t.Errorf("%d attempts, after %v", attempts, time.Since(began))
		}
	})
}

// TestFailingParkInOrder: where nothing else can be handled, the gate and an error say how many messages cannot be parked,
// and a pause returns the message to its place.
func TestFailingParkInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	f := &failing{}
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if m.MessageID == "a/0" {
			return answer(500)
		}
		return answer(200)
	}), settings{order: "queue", concurrency: 1, prefetch: 2, maxRetries: 1, publisher: f.before})
	r.publishKeyed("a", 0, 4)
	r.eventually("the reason", func() bool {
		return r.heldFor(flow.Publishing) && strings.Contains(r.flow.Holds()[0].Detail, "cannot be parked") && r.flow.Open() && r.Active()
	})
	r.eventually("the log line", func() bool {
		return strings.Contains(r.log.String(), `"level":"error","msg":"paused","reason":"publishing","waiting":1,`)
	})
	r.flow.Hold(flow.Operator, "")
	r.holds(r.plan.Queue, 4)
	if !r.heldFor(flow.Operator) {
		t.Errorf("reasons %+v", r.flow.Holds())
	}
	f.works.Store(true)
	r.flow.Lift(flow.Operator)
	r.acked(3)
	if d := r.parked(); d.MessageId != "a/0" || d.Headers["x-final-retry-count"] != int32(1) {
		t.Errorf("parked %s with %v", d.MessageId, d.Headers)
	}
	same(t, &l, "a", []string{"a/0#0", "a/0#1", "a/1#0", "a/2#0", "a/3#0"})
}

type publisherFunc func(ctx context.Context, p *message.Publication) error

func (f publisherFunc) Publish(ctx context.Context, p *message.Publication) error { return f(ctx, p) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
