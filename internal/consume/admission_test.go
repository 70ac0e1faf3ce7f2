package consume

import (
	"context"
	"fmt"
	"math"
	"slices"
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
	go func() { _ = s.take(deliveries); s.leftover(); s.freePending(); close(ended) }()
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

// TestSlotOfWhatNoWorkerTook: a pause gives it back.
func TestSlotOfWhatNoWorkerTook(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slots, end, attempts := make(chan struct{}, 3), make(chan struct{}), 0
		o := benchOptions(t, 8) // more than there are workers
		o.Concurrency, o.Slots, o.Dispatcher = 1, []chan struct{}{slots}, dispatcher(func(context.Context, *message.Message) message.Outcome {
			if attempts++; attempts > 10 { // behind the ramp-up
				<-end
			}
			return answer(200)
		})
		limited(t, 20, o)
		synctest.Wait()
		before := len(slots)
		o.Flow.Hold(flow.Operator, "")
		synctest.Wait()
		if after := len(slots); before != 2 || after != 1 {
			t.Errorf("%d slots are taken, and %d in the pause; want 2 and 1", before, after)
		}
		close(end)
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

// TestCollector: what is due, and when, after some messages.
func TestCollector(t *testing.T) {
	t.Parallel()
	type in struct {
		url   string
		size  int
		alone bool
	}
	for name, test := range map[string]struct {
		in    []in
		after time.Duration // since the first one
		due   []string      // the URL and the sizes of each, in their order
		wait  time.Duration // until one of the rest is due
		rest  int           // batches
	}{
		"nothing":             {},
		"waits":               {in: []in{{"a", 1, false}}, wait: 20, rest: 1},
		"waited":              {in: []in{{"a", 1, false}}, after: 20, due: []string{"a[1]"}},
		"waits on":            {in: []in{{"a", 1, false}}, after: 15, wait: 5, rest: 1},
		"full":                {in: []in{{"a", 1, false}, {"a", 2, false}, {"a", 3, false}}, due: []string{"a[1 2 3]"}},
		"one left":            {in: []in{{"a", 1, false}, {"a", 2, false}, {"a", 3, false}, {"a", 4, false}}, due: []string{"a[1 2 3]"}, wait: 20, rest: 1},
		"by URL":              {in: []in{{"a", 1, false}, {"b", 2, false}, {"a", 3, false}, {"b", 4, false}}, after: 20, due: []string{"a[1 3]", "b[2 4]"}},
		"alone":               {in: []in{{"a", 1, false}, {"a", 2, true}, {"a", 3, false}}, due: []string{"a[2]"}, wait: 20, rest: 1},
		"too many bytes":      {in: []in{{"a", 60, false}, {"a", 41, false}}, due: []string{"a[60]"}, wait: 20, rest: 1},
		"all the bytes":       {in: []in{{"a", 60, false}, {"a", 40, false}}, wait: 20, rest: 1},
		"larger than a batch": {in: []in{{"a", 1, false}, {"a", 101, false}}, due: []string{"a[101]"}, wait: 20, rest: 1},
		"as large as a batch": {in: []in{{"a", 100, false}}, wait: 20, rest: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(Batch{Size: 3, Bytes: 100, Wait: 20})
			start := time.Now()
			for _, m := range test.in {
				c.add(&attempt{m: message.Message{MessageID: m.url, Body: make([]byte, m.size)}}, m.url, m.alone, start)
			}
			var due []string
			now := start.Add(test.after)
			b, wait := c.due(now)
			for ; b != nil; b, wait = c.due(now) {
				var sizes []int
				for i := range b.attempts {
					sizes = append(sizes, len(b.attempts[i].m.Body))
				}
				due = append(due, fmt.Sprint(b.attempts[0].m.MessageID, sizes))
				c.take(b)
			}
			slices.Sort(due) // two that are equally old come in any order
			if !slices.Equal(due, test.due) {
				t.Errorf("due: %v, want %v", due, test.due)
			}
			if rest := c.rest(); len(rest) != test.rest || wait != test.wait {
				t.Errorf("%d left, due in %d; want %d in %d", len(rest), wait, test.rest, test.wait)
			}
			if b, _ := c.due(start.Add(time.Hour)); b != nil {
				t.Error("a batch is left behind the rest")
			}
		})
	}
}

// TestCollectorIsFair: messages that go alone, however many they are, do not hold back a batch that is overdue.
func TestCollectorIsFair(t *testing.T) {
	t.Parallel()
	c, start := newCollector(Batch{Size: 3, Bytes: 100, Wait: 20}), time.Now()
	c.add(&attempt{m: message.Message{MessageID: "open"}}, "a", false, start)
	c.add(&attempt{m: message.Message{MessageID: "alone"}}, "a", true, start.Add(1))
	for after, want := range map[time.Duration]string{19: "alone", 20: "open"} {
		if b, wait := c.due(start.Add(after)); b == nil || b.attempts[0].m.MessageID != want || wait != 0 {
			t.Errorf("after %d: %v, in %d; want %s", after, b, wait, want)
		}
	}
}
