package consume

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

func bodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%d", i)
	}
	return out
}

// TestRequeueIsNotCounted: the message is held here each time, in the only place that there is.
func TestRequeueIsNotCounted(t *testing.T) {
	t.Parallel()
	var s seen
	f := &failing{}
	answers := s.answers(425, 425)
	r := start(t, dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
		if m.RetryCount != 0 {
			t.Errorf("a requeue was counted: %d", m.RetryCount)
		}
		return answers(ctx, m)
	}), settings{concurrency: 1, prefetch: 2, publisher: f.before})
	r.publish("a")
	r.acked(1)
	r.counted(2, message.Requeue, message.ReasonTooEarly)
	if n := f.failed.Load(); n != 0 {
		t.Errorf("%d detours", n)
	}
}

// refused is what the app that is away answers.
var refused = message.Outcome{Failure: message.FailureRefused, Err: errRefused, RetryAfter: -1}

// TestTooEarlyMessagesDoNotBlockOthers puts many times the window of messages that are never due before others that are.
func TestTooEarlyMessagesDoNotBlockOthers(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if strings.HasPrefix(m.MessageID, "early") {
			if m.RetryCount != 0 {
				t.Errorf("%s has retry count %d", m.MessageID, m.RetryCount)
			}
			return answer(425)
		}
		return answer(200)
	}), settings{concurrency: 2, prefetch: 4})
	var early []string
	for i := range 30 {
		early = append(early, fmt.Sprintf("early%d", i))
	}
	r.publish(append(early, bodies(10)...)...)
	r.acked(10)
}

// failing lets no publish through to the broker until works is set.
type failing struct {
	Publisher
	works  atomic.Bool
	failed atomic.Int64
}

func (f *failing) Publish(ctx context.Context, p *message.Publication) error {
	if f.works.Load() {
		return f.Publisher.Publish(ctx, p)
	}
	f.failed.Add(1)
	return broker.ErrNacked
}

func (f *failing) before(p Publisher) Publisher { f.Publisher = p; return f }

// TestNothingCanBeParked: with every slot stuck nothing moves, which must show; once parking works all of it goes.
func TestNothingCanBeParked(t *testing.T) {
	t.Parallel()
	f := &failing{}
	r := start(t, always(500), settings{concurrency: 2, prefetch: 4, maxRetries: 1, publisher: f.before})
	begin := time.Now()
	r.publish(bodies(6)...)
	r.eventually("the pause", func() bool { return r.Unpublished() >= 4 && r.heldFor(flow.Publishing) })
	lines := strings.Count(r.log.String(), `"msg":"publish failed"`)
	// The exchange is left out: it is the default one, whose name is empty.
	if line := `"kind":"park","routing_key":"` + r.plan.Park.Key + `","message_id":"`; !strings.Contains(r.log.String(), line) {
		t.Errorf("no line with %s: %s", line, r.log.String())
	}
	if most := 1 + int(time.Since(begin)/time.Second); lines < 1 || lines > most {
		t.Errorf("%d lines for %d failures, want 1 to %d", lines, f.failed.Load(), most)
	}
	f.works.Store(true)
	r.counted(6, message.Park, message.ReasonMaxRetries)
	if r.Unpublished() != 0 || !r.flow.Open() {
		t.Errorf("%d stuck, holds %v", r.Unpublished(), r.flow.Holds())
	}
	if got, want := testutil.ToFloat64(r.metrics().parkFailures), float64(f.failed.Load()); got != want || want == 0 {
		t.Errorf("%v park failures counted, want %v", got, want)
	}
	r.holds(r.dlq(), 6)
	r.holds(r.plan.Queue, 0)
}

// TestPauseReturnsWhatHadNoTurn, and the message that finds no app when the consumer is already cancelled: all of it
// goes back uncounted, and waits in the retry queue instead when the broker has counted as many deliveries as the plan
// allows.
func TestPauseReturnsWhatHadNoTurn(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"to its queue": 0, "near a delivery limit": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hold := make(chan struct{})
			var posted atomic.Int64
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				if posted.Add(1) == 1 {
					<-hold
					return refused
				}
				if _, waited := m.Headers["x-death"]; waited != (limit > 0) || m.RetryCount != 0 {
					t.Errorf("%s has retry count %d, headers %v", m.MessageID, m.RetryCount, m.Headers)
				}
				return answer(200)
			}), settings{concurrency: 1, prefetch: 10, change: func(p *topology.Plan) { p.RequeueLimit = limit }})
			r.eventuallyDeclared()
			for _, id := range bodies(5) {
				brokertest.Publish(t, r.ch, "", r.plan.Queue, amqp.Publishing{MessageId: id, Headers: amqp.Table{"x-delivery-count": limit}})
			}
			r.eventually("one in flight", func() bool { return r.Inflight() == 1 })
			r.holds(r.plan.Queue, 0)
			r.flow.Hold(flow.Operator, "test")
			r.eventually("the consumer is cancelled", func() bool { return !r.Active() })
			r.holds(r.plan.Queue, 4)
			if n := posted.Load(); n != 1 {
				t.Errorf("%d POSTs, want the one in flight", n)
			}
			close(hold)
			r.holds(r.plan.Queue, 5)
			r.counted(1, message.Release, message.ReasonAppDown)
			r.flow.Lift(flow.Operator)
			r.acked(5)
		})
	}
}

// TestAppThatIsBackBeforeThePause: no cancel comes with which it could go back. With one worker nothing else moves the
// gate.
func TestAppThatIsBackBeforeThePause(t *testing.T) {
	t.Parallel()
	r := start(t, first(refused), settings{concurrency: 1, prefetch: 1, opens: true})
	r.publish("a")
	r.acked(1)
}

func TestRetryAfterPausesTheReplica(t *testing.T) {
	t.Parallel()
	r := start(t, inAnHour(503), settings{})
	r.publish("a")
	r.eventually("the pause", func() bool { return r.heldFor(flow.RetryAfter) && !r.Active() })
}

// TestGraceEndsInOrder: what the end of the grace interrupts returns to its place.
func TestGraceEndsInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	posting := make(chan struct{}, 1)
	r := start(t, dispatcher(func(ctx context.Context, m *message.Message) message.Outcome {
		return l.Dispatch(m, func() message.Outcome {
			posting <- struct{}{}
			<-ctx.Done()
			return message.Outcome{Failure: message.FailureInterrupted, RetryAfter: -1, At: time.Now()}
		})
	}), settings{order: byKey})
	r.publishKeyed("a", 0, 3)
	<-posting
	if d := r.drain(0); d.Interrupted != 1 {
		t.Errorf("%+v, want 1 interrupted", d)
	}
	other := r.replica(l.answers(func(*message.Message) message.Outcome { return answer(200) }), settings{order: byKey})
	other.acked(3)
	same(t, &l, "a", []string{"a/0#0", "a/0#0", "a/1#0", "a/2#0"})
}

// TestStopClosesTheChannel: what is unsettled returns at once, also while other queues keep the connection.
func TestStopClosesTheChannel(t *testing.T) {
	t.Parallel()
	var l ledger
	linger := make(chan struct{})
	r := start(t, l.answers(func(*message.Message) message.Outcome { return answer(500) }),
		settings{order: byKey, retryDelay: time.Hour, linger: linger})
	t.Cleanup(func() { close(linger) }) // before that of the rig
	r.publishKeyed("a", 0, 3)
	r.eventually("a failed message is held", func() bool { return r.Delayed() == 1 })
	queue := r.plan.Queue
	r.drain(time.Minute)
	r.holds(queue, 3)
}
