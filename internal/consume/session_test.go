package consume

import (
	"context"
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// awaited reports whether a copy has waited for an attempt that is under way.
func (r *rig) awaited() bool {
	r.remembered.mu.Lock()
	defer r.remembered.mu.Unlock()
	for _, f := range r.remembered.fates {
		return f.over != nil
	}
	return false
}

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
					return testutil.ToFloat64(r.metrics().received[1]) == float64(n+1) && r.Inflight() == 1 && r.awaited()
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
	// The new session has the same window as the first.
	r.eventually("one consumer with a prefetch of 20", func() bool {
		return brokertest.Eval(t, fmt.Sprintf("[proplists:get_value(prefetch_count, C) || C <- rabbit_amqqueue:consumers_all(<<%q>>)]",
			brokertest.VhostName(t))) == "[20]"
	})
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

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
