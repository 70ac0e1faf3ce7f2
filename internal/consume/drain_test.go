package consume

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

func TestDrainWaitsForWhatIsInFlight(t *testing.T) {
	t.Parallel()
	begun := make(chan struct{}, 8)
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome {
		begun <- struct{}{}
		time.Sleep(300 * time.Millisecond)
		return answer(200)
	}), settings{concurrency: 1, prefetch: 5})
	r.publish(bodies(20)...)
	<-begun
	m := r.metrics()
	d := r.drain(soon)
	if d.Interrupted != 0 || d.Returned == 0 {
		t.Errorf("drained %+v, want none interrupted and the prefetched ones returned", d)
	}
	acked := int(testutil.ToFloat64(m.settled[message.Ack][message.ReasonSuccess]))
	brokertest.WaitReady(t, r.url, r.plan.Queue, 20-acked)
	brokertest.WaitReady(t, r.url, r.dlq(), 0)
	if err := <-r.ended; err != nil {
		t.Errorf("Supervise: %v after a drain", err)
	}
}

func TestDrainInterruptsWhenTheGraceExpires(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(ctx context.Context, _ *message.Message) message.Outcome {
		<-ctx.Done()
		return message.Outcome{Failure: message.FailureInterrupted, Err: context.Cause(ctx), RetryAfter: -1}
	}), settings{concurrency: 3, prefetch: 6})
	r.publish(bodies(10)...)
	r.eventually("three in flight", func() bool { return r.Inflight() == 1 || r.Inflight() == 3 })
	if d := r.drain(50 * time.Millisecond); d.Interrupted == 0 {
		t.Errorf("drained %+v", d)
	}
	brokertest.WaitReady(t, r.url, r.plan.Queue, 10)
	brokertest.WaitReady(t, r.url, r.dlq(), 0)
}

func TestDrainWakesSleepers(t *testing.T) {
	t.Parallel()
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome {
		o := answer(425)
		o.RetryAfter = time.Hour
		return o
	}), settings{})
	r.publish("a", "b")
	r.eventually("two sleepers", func() bool { return r.Delayed() == 2 })
	if d := r.drain(soon); d.Interrupted != 0 {
		t.Errorf("drained %+v: a sleeper is not an attempt", d)
	}
	brokertest.WaitReady(t, r.url, r.plan.Queue, 2)
}

func TestDrainWithoutABroker(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	r.publish("a")
	r.eventually("the ack", func() bool { return r.count(message.Ack, message.ReasonSuccess) == 1 })
	r.proxy.Refuse()
	r.proxy.Cut()
	r.eventually("the link is down", func() bool { return !r.Active() })
	r.drain(time.Second) // returns, which is the test
}
