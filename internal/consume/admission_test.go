package consume

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/time/rate"

	"sidecar/internal/amqpwire"
	"sidecar/internal/flow"
	"sidecar/internal/message"
)

// limited pumps n messages through a consumer in virtual time, until the test's end.
func limited(t *testing.T, n int, o Options) *Consumer {
	t.Helper()
	c := New(o)
	t.Cleanup(func() { c.Drain(context.Background()) })
	s := benchSession(t, c)
	deliveries := amqpwire.NewDeliveries(0)
	for tag := range n {
		deliveries.Add(benchDelivery(uint64(tag+1), nil, time.Now()))
	}
	ended := make(chan struct{})
	go func() { _ = s.pump(deliveries); s.leftover(); s.freePending(); close(ended) }()
	t.Cleanup(func() { c.Stop(); <-ended })
	return c
}

func TestRatesAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := benchOptions(t, 4)
		began, last, attempts := time.Now(), time.Time{}, 0
		o.Concurrency, o.Dispatcher = 1, dispatcher(func(context.Context, *message.Message) message.Outcome {
			last = time.Now()
			attempts++
			return answer(200)
		})
		o.Rates = []*rate.Limiter{rate.NewLimiter(50, 5), rate.NewLimiter(10, 1)}
		c := limited(t, 21, o)
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := last.Sub(began); attempts != 21 || took != 2*time.Second {
			t.Errorf("%d attempts in %v, want 21 in 2 s", attempts, took)
		}
		if got := testutil.ToFloat64(c.metrics.throttled); math.Abs(got-2) > 1e-9 {
			t.Errorf("%v seconds throttled, want 2", got)
		}
	})
}

func TestConsumersTakeTurnsAtSlots(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots := make(chan struct{}, 3)
		var at [2]atomic.Int64
		var started, running, most atomic.Int64
		for i, backlog := range []int{1000, 30} {
			o := benchOptions(t, 8)
			o.Slots, o.Dispatcher = []chan struct{}{slots}, dispatcher(func(context.Context, *message.Message) message.Outcome {
				n := running.Add(1)
				most.Store(max(most.Load(), n))
				// Each takes longer than those before it, so no two end at one instant, when chance would give out the slots.
				time.Sleep(time.Second + time.Duration(started.Add(1))*time.Microsecond)
				running.Add(-1)
				at[i].Add(1)
				return answer(200)
			})
			limited(t, backlog, o)
		}
		time.Sleep(10*time.Second + 100*time.Millisecond)
		if a, b := at[0].Load(), at[1].Load(); a+b < 28 || max(a, b)-min(a, b) > 4 { // the first one may take three, and wait for the next before the other does
			t.Errorf("%d and %d messages in ten seconds with three slots, want half of 30 each", a, b)
		}
		time.Sleep(20 * time.Second) // the shorter backlog has ended: the other one has all slots
		if a, b := at[0].Load(), at[1].Load(); b != 30 || a+b < 88 || most.Load() != 3 {
			t.Errorf("%d and %d messages, at most %d at once; want 60, 30, 3", a, b, most.Load())
		}
	})
}

// TestWhatWaitsIsGivenBack: a pause and a stop return what waits for a rate or for a slot, uncounted, and what it has
// taken of either.
func TestWhatWaitsIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]settings{
		"rate": {rates: []*rate.Limiter{rate.NewLimiter(rate.Every(time.Hour), 2)}},
		"slot": {slots: []chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}}, // the second one is not free
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var s seen
			if c.slots != nil {
				c.slots[1] <- struct{}{}
			} else {
				c.rates[0].Allow()
			}
			r := start(t, s.answers(), c)
			r.publish(bodies(3)...)
			waits := 3
			if c.slots == nil {
				waits = 2 // the rate lets one message through
			}
			r.eventually("one waits", func() bool { return r.Received() == int64(4-waits) && s.Total() == 3-waits })
			r.holds(r.plan.Queue, 0)
			r.flow.Hold(flow.Operator, "")
			r.holds(r.plan.Queue, waits)
			r.counted(waits, message.Release, message.ReasonUndispatched)
			if c.slots != nil {
				<-c.slots[1] // and none is held by the consumer that waited
			} else {
				c.rates[0].SetLimit(rate.Inf)
			}
			r.flow.Lift(flow.Operator)
			r.acked(3)
			if s.Total() != 3 {
				t.Errorf("%d attempts for 3 messages", s.Total())
			}
		})
	}
}
