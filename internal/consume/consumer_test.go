package consume

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/message"
)

func bodies(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("m%d", i)
	}
	return out
}

func TestEveryMessageIsAckedOnce(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		s.add(m.MessageID)
		return answer(204)
	}), settings{concurrency: 8, prefetch: 16})
	r.publish(bodies(500)...)
	r.eventually("500 acks", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 500 })
	if s.total() != 500 {
		t.Errorf("%d attempts for 500 messages", s.total())
	}
	if d := r.drain(time.Second); d != (Drained{}) {
		t.Errorf("an idle consumer drained %+v", d)
	}
	brokertest.WaitReady(t, r.url, r.plan.Queue, 0)
}

func TestAStuckMessageDoesNotHoldTheOthers(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.MessageID == "m0" {
			<-release
		}
		return answer(200)
	}), settings{concurrency: 2, prefetch: 4})
	r.publish(bodies(60)...)
	r.eventually("the 59 behind it", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 59 })
	close(release)
	r.eventually("all", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 60 })
}

func TestRetryUntilParked(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if n := s.add(m.MessageID); n != m.RetryCount+1 {
			t.Errorf("attempt %d carries retry count %d", n, m.RetryCount)
		}
		return answer(500)
	}), settings{maxRetries: 3})
	r.publish("a")
	d := brokertest.Get(t, r.url, r.dlq(), soon)
	if s.of("a") != 4 || d.Headers["x-final-reason"] != "max_retries" {
		t.Errorf("%d attempts, parked for %v", s.of("a"), d.Headers["x-final-reason"])
	}
	r.eventually(eventMaxRetries+" in the log", func() bool { return strings.Contains(r.log.String(), eventMaxRetries) })
	if got := r.count(message.Retry, message.ReasonServerError); got != 3 {
		t.Errorf("%d retries counted, want 3", got)
	}
}

func TestDispositionsLeaveTheirTrace(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		o := answer(200)
		o.Detail, o.Unknown = "because", m.MessageID == "unknown"
		switch m.MessageID {
		case "discard":
			o.Disposition = message.DispositionDiscard
		case "park":
			o.Disposition = message.DispositionPark
		}
		return o
	}), settings{})
	r.publish("discard", "park", "unknown")
	r.eventually("a discard", func() bool { return r.count(message.Discard, message.ReasonDisposition) == 1 })
	r.eventually("a park", func() bool { return r.count(message.Park, message.ReasonDisposition) == 1 })
	r.eventually("the status decides", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	for _, want := range []string{`"unknown_disposition":true`, `"detail":"because"`, `"outcome":"discard"`} {
		if !strings.Contains(r.log.String(), want) {
			t.Errorf("no %s in the log", want)
		}
	}
	if d := brokertest.Get(t, r.url, r.dlq(), soon); d.MessageId != "park" {
		t.Errorf("parked %q", d.MessageId)
	}
}

func TestRequeueIsNotCounted(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.RetryCount != 0 {
			t.Errorf("a requeue was counted: %d", m.RetryCount)
		}
		if s.add(m.MessageID) < 4 {
			return answer(425)
		}
		return answer(200)
	}), settings{})
	r.publish("a")
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	if got := r.count(message.Requeue, message.ReasonTooEarly); got != 3 {
		t.Errorf("%d requeues, want 3", got)
	}
}

// TestTooEarlyMessagesStarveNobody puts many times the window of messages that are never due before others that are.
func TestTooEarlyMessagesStarveNobody(t *testing.T) {
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
	for i := range 60 {
		early = append(early, fmt.Sprintf("early%d", i))
	}
	r.publish(append(early, bodies(20)...)...)
	r.eventually("the 20 that are due", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 20 })
}

// failing fails the first publishes, then lets them through to the broker.
type failing struct {
	Publisher
	left atomic.Int64
}

func (f *failing) Publish(ctx context.Context, p *broker.Publication) error {
	if f.left.Add(-1) >= 0 {
		return broker.ErrNacked
	}
	return f.Publisher.Publish(ctx, p)
}

func TestParkIsTriedUntilConfirmed(t *testing.T) {
	t.Parallel()
	f := &failing{}
	f.left.Store(2)
	r := start(t, always(500), settings{maxRetries: 1, publisher: func(p Publisher) Publisher { f.Publisher = p; return f }})
	r.publish("a")
	if d := brokertest.Get(t, r.url, r.dlq(), soon); d.MessageId != "a" {
		t.Errorf("parked %q", d.MessageId)
	}
	if got := testutil.ToFloat64(r.metrics().parkFailures); got != 2 {
		t.Errorf("%v park failures counted, want 2", got)
	}
	brokertest.WaitReady(t, r.url, r.plan.Queue, 0)
}

// TestNothingCanBeParked: with every slot stuck nothing moves, which must show; once parking works all of it goes.
func TestNothingCanBeParked(t *testing.T) {
	t.Parallel()
	f := &failing{}
	f.left.Store(1 << 30)
	r := start(t, always(500), settings{concurrency: 2, prefetch: 4, maxRetries: 1, publisher: func(p Publisher) Publisher { f.Publisher = p; return f }})
	r.publish(bodies(6)...)
	r.eventually("the pause", func() bool {
		h := r.flow.Holds()
		return r.Stuck() >= 4 && len(h) == 1 && h[0].Reason == flow.Publishing
	})
	f.left.Store(0)
	r.eventually("all parked", func() bool { return r.count(message.Park, message.ReasonMaxRetries) == 6 })
	if r.Stuck() != 0 || !r.flow.Open() {
		t.Errorf("%d stuck, holds %v", r.Stuck(), r.flow.Holds())
	}
}

func TestPaceSpacesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := pace{interval: time.Second}
		for want := range 3 {
			if d := p.reserve(); d != time.Duration(want)*time.Second {
				t.Errorf("reservation %d is %v away", want, d)
			}
		}
		time.Sleep(10 * time.Second)
		if d := p.reserve(); d != 0 {
			t.Errorf("after a rest the next is %v away", d)
		}
	})
}

func TestDrainGivesBackWhatCannotBeParked(t *testing.T) {
	t.Parallel()
	f := &failing{}
	f.left.Store(1 << 30)
	r := start(t, always(500), settings{maxRetries: 1, publisher: func(p Publisher) Publisher { f.Publisher = p; return f }})
	r.publish("a")
	r.eventually("a failed park", func() bool { return testutil.ToFloat64(r.metrics().parkFailures) > 0 })
	if d := r.drain(100 * time.Millisecond); d.Interrupted != 1 {
		t.Errorf("drained %+v, want one interrupted", d)
	}
	brokertest.WaitReady(t, r.url, r.plan.Queue, 1)
	brokertest.WaitReady(t, r.url, r.dlq(), 0)
}

func TestDetourThatFailsHoldsInstead(t *testing.T) {
	t.Parallel()
	f := &failing{}
	f.left.Store(1 << 30)
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.add(m.MessageID) == 1 {
			return answer(425)
		}
		return answer(200)
	}), settings{concurrency: 2, prefetch: 2, publisher: func(p Publisher) Publisher { f.Publisher = p; return f }})
	r.publish("a", "b")
	r.eventually("both acks", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 2 })
}

func TestPauseReturnsWhatHadNoTurn(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	var posted atomic.Int64
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome {
		posted.Add(1)
		<-hold
		return answer(200)
	}), settings{concurrency: 1, prefetch: 10})
	r.publish(bodies(30)...)
	r.eventually("one in flight", func() bool { return r.Inflight() == 1 })
	r.flow.Hold(flow.Operator, "test")
	r.eventually("the consumer is cancelled", func() bool { return !r.Active() })
	brokertest.WaitReady(t, r.url, r.plan.Queue, 29)
	if n := posted.Load(); n != 1 {
		t.Errorf("%d POSTs, want the one in flight", n)
	}
	close(hold)
	r.flow.Lift(flow.Operator)
	r.eventually("all acked", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 30 })
}

func TestAppThatIsAwayCostsNothing(t *testing.T) {
	t.Parallel()
	var away atomic.Bool
	away.Store(true)
	var attempts atomic.Int64
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.RetryCount != 0 {
			t.Errorf("retry count %d after an absence", m.RetryCount)
		}
		if away.Load() {
			attempts.Add(1)
			return message.Outcome{Failure: message.FailureRefused, Err: errRefused, RetryAfter: -1}
		}
		return answer(200)
	}), settings{probe: func(context.Context) error {
		if away.Load() && attempts.Load() > 0 { // up at the start, away once somebody has noticed
			return errRefused
		}
		return nil
	}})
	r.publish(bodies(50)...)
	r.eventually("a refusal", func() bool { return attempts.Load() > 0 })
	r.eventually("the pause", func() bool { return !r.flow.Open() && !r.Active() })
	brokertest.WaitReady(t, r.url, r.plan.Queue, 50)
	away.Store(false)
	r.eventually("all acked", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 50 })
	brokertest.WaitReady(t, r.url, r.dlq(), 0)
}

func TestRetryAfterPausesTheReplica(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome {
		o := answer(503)
		o.RetryAfter = time.Hour
		return o
	}), settings{})
	r.publish("a")
	r.eventually("the pause", func() bool {
		h := r.flow.Holds()
		return len(h) == 1 && h[0].Reason == flow.RetryAfter && !r.Active()
	})
}

func TestAPanicTakesNobodyAlong(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if m.MessageID == "bad" && s.add("bad") == 1 {
			panic("a bug")
		}
		return answer(200)
	}), settings{concurrency: 1, prefetch: 2})
	r.publish("bad", "good")
	r.eventually("the good one", func() bool { return r.count(message.Ack, message.ReasonSuccess) >= 1 })
	r.eventually("the bad one", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 2 })
	if got := r.count(message.Requeue, message.ReasonPanic); got != 1 {
		t.Errorf("%d requeues for a panic, want 1", got)
	}
}

func TestServeAfterStopDoesNothing(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	r.eventually("active", func() bool { return r.Active() })
	c := r.Consumer
	r.drain(time.Second)
	if err := c.Serve(context.Background(), nil); err != nil {
		t.Errorf("Serve after a drain: %v", err)
	}
}

func TestSubscribeFails(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	r.eventually("active", func() bool { return r.Active() })
	d := broker.NewDialer(broker.Options{URLs: func() ([]string, error) { return []string{r.url}, nil }})
	s, err := d.Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := r.Serve(context.Background(), s); !errors.Is(err, broker.ErrDisconnected) {
		t.Errorf("Serve on a dead session: %v", err)
	}
	s.Close()
}

func TestMessageAgeAndRetriesAreObserved(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	r.eventuallyDeclared()
	ch := brokertest.Channel(t, r.url)
	brokertest.Publish(t, ch, "", r.plan.Queue, amqp.Publishing{Timestamp: time.Now().Add(-time.Minute), Body: []byte("x")})
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	if r.metrics().age == nil || r.metrics().retries == nil {
		t.Fatal("no observers")
	}
}
