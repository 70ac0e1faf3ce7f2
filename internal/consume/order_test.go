package consume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"
	"golang.org/x/time/rate"

	"sidecar/internal/amqpwire"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/flow"
	"sidecar/internal/message"
)

const byKey = "header:key"

// ledger records the attempts of messages whose ids are a key, a slash and a number.
type ledger struct {
	mu       sync.Mutex
	running  map[string]int // by key
	most     int            // of all keys at once
	attempts map[string][]string
	wrong    []string
}

func (l *ledger) Dispatch(m *message.Message, answer func() message.Outcome) message.Outcome {
	key, _, _ := strings.Cut(m.MessageID, "/")
	l.mu.Lock()
	if l.running == nil {
		l.running, l.attempts = map[string]int{}, map[string][]string{}
	}
	if l.running[key]++; l.running[key] > 1 && key != "" {
		l.wrong = append(l.wrong, "two messages at once: "+m.MessageID)
	}
	all := 0
	for _, n := range l.running {
		all += n
	}
	l.most = max(l.most, all)
	l.attempts[key] = append(l.attempts[key], fmt.Sprintf("%s#%d", m.MessageID, m.RetryCount))
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		l.running[key]--
		l.mu.Unlock()
	}()
	return answer()
}

// of returns the attempts of a key: m.MessageID#m.RetryCount.
func (l *ledger) of(key string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.attempts[key])
}

func (l *ledger) check(t *testing.T) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) > 0 {
		t.Errorf("%d times: %s", len(l.wrong), l.wrong[0])
	}
}

// dispatcher answers attempts by a function of the message.
func (l *ledger) answers(answer func(*message.Message) message.Outcome) dispatcher {
	return func(_ context.Context, m *message.Message) message.Outcome {
		return l.Dispatch(m, func() message.Outcome { return answer(m) })
	}
}

// publishKeyed publishes messages of a key, key/0 and so on.
func (r *rig) publishKeyed(key string, from, to int) {
	r.t.Helper()
	r.declared.Do(r.eventuallyDeclared)
	for n := from; n < to; n++ {
		headers := amqp.Table{}
		if key != "" {
			headers["key"] = key
		}
		m := amqp.Publishing{MessageId: fmt.Sprintf("%s/%d", key, n), Body: []byte("x"), DeliveryMode: 2, Headers: headers}
		r.confirmed(m)
	}
}

func inOrder(key string, from, to int) (all []string) {
	for n := from; n < to; n++ {
		all = append(all, fmt.Sprintf("%s/%d#0", key, n))
	}
	return all
}

func same(t *testing.T, l *ledger, key string, want []string) {
	t.Helper()
	if got := l.of(key); !slices.Equal(got, want) {
		t.Errorf("attempts of key %q:\n%v, want\n%v", key, got, want)
	}
	l.check(t)
}

// TestKeysAreInOrder: messages of one key are POSTed one after the other, those of different keys and without a key
// beside each other.
func TestKeysAreInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	r := start(t, l.answers(func(*message.Message) message.Outcome {
		time.Sleep(time.Millisecond)
		return answer(200)
	}), settings{order: byKey, concurrency: 8, prefetch: 40})
	for from := range 6 {
		for _, key := range []string{"a", "b", "c", ""} {
			r.publishKeyed(key, 3*from, 3*from+3)
		}
	}
	r.acked(72)
	for _, key := range []string{"a", "b", "c"} {
		same(t, &l, key, inOrder(key, 0, 18))
	}
	if len(l.of("")) != 18 || l.most < 2 {
		t.Errorf("%d attempts without a key; %d at once", len(l.of("")), l.most)
	}
	r.eventually("nothing is left in the order", func() bool {
		o := r.order
		o.mu.Lock()
		defer o.mu.Unlock()
		return len(o.all)+len(o.lanes)+len(o.ready)+o.inflight == 0
	})
}

// TestFailedMessageHoldsItsKey: it is tried again in its place and then parked, and other keys go on meanwhile.
func TestFailedMessageHoldsItsKey(t *testing.T) {
	t.Parallel()
	var l ledger
	others := make(chan struct{}) // closed when key b was handled: until then the second attempt goes on
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		switch {
		case m.MessageID == "a/0" || m.MessageID == "a/2" && m.RetryCount == 0:
			if m.RetryCount > 0 {
				<-others
			}
			return answer(500)
		case m.MessageID == "a/1" && len(l.of("a")) < 5:
			return answer(425)
		}
		return answer(200)
	}), settings{order: byKey, maxRetries: 2})
	r.publishKeyed("a", 0, 4)
	r.counted(1, message.Retry, message.ReasonServerError)
	r.publishKeyed("b", 0, 20)
	r.acked(20)
	if n := len(l.of("a")); n > 2 {
		t.Errorf("%d attempts of key a while key b was handled", n)
	}
	close(others)
	r.acked(23)
	same(t, &l, "a", []string{"a/0#0", "a/0#1", "a/0#2", "a/1#0", "a/1#0", "a/2#0", "a/2#1", "a/3#0"})
	same(t, &l, "b", inOrder("b", 0, 20))
	d := r.parked()
	if d.MessageId != "a/0" || d.Headers["x-final-retry-count"] != int32(2) || d.Headers["x-final-reason"] != "max_retries" {
		t.Errorf("parked %s with %v", d.MessageId, d.Headers)
	}
	r.counted(3, message.Retry, message.ReasonServerError)
	r.counted(1, message.Requeue, message.ReasonTooEarly)
	received := testutil.ToFloat64(r.metrics().received[0]) + testutil.ToFloat64(r.metrics().received[1])
	if received != 28 { // 23 acked, one parked, four more attempts
		t.Errorf("%v deliveries counted, want 28", received)
	}
	if n := len(r.log.Lines(`"message_id":"a/0"`, `"outcome":"retry"`)); n != 2 {
		t.Errorf("%d lines about retries of a/0, want 2", n)
	}
	r.holds(r.plan.Queue, 0)
}

// blocked is a stderr that is not read before it is closed.
type blocked chan struct{}

func (b blocked) Write(p []byte) (int, error) {
	<-b
	return len(p), nil
}

// TestFullWindowIsShown: held keys that take every place of the window are a reason of the gate, which stays open. Its
// messages are handled while the line about it cannot be written.
func TestFullWindowIsShown(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	fails.Store(true)
	var l ledger
	stderr := make(blocked)
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if m.MessageID == "a/0" && fails.Load() {
			return answer(500)
		}
		return answer(200)
	}), settings{order: byKey, concurrency: 2, prefetch: 4, maxRetries: 1000, quiet: true, stderr: stderr})
	defer close(stderr)
	r.publishKeyed("a", 0, 6)
	r.eventually("the reason", func() bool { return r.heldFor(flow.Order) && r.flow.Open() && r.Active() })
	fails.Store(false)
	r.acked(6)
	r.eventually("no reason", func() bool { return len(r.flow.Holds()) == 0 })
}

// TestPauseInOrder: a pause finishes what is in flight, cuts waits short and returns the rest in its place; the attempts
// are remembered.
func TestPauseInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	posting, release := make(chan struct{}, 1), make(chan struct{})
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		switch {
		case m.MessageID == "slow/0":
			posting <- struct{}{}
			<-release
		case m.MessageID == "a/0" && m.RetryCount < 2:
			return answer(500)
		}
		return answer(200)
	}), settings{order: byKey, retryDelay: 500 * time.Millisecond})
	r.publishKeyed("slow", 0, 2)
	r.publishKeyed("a", 0, 3)
	<-posting
	r.eventually("a failed message is held", func() bool { return r.Delayed() == 1 })
	r.flow.Hold(flow.Operator, "")
	r.eventually("the wait is cut short", func() bool { return r.Delayed() == 0 })
	if len(l.of("slow")) != 1 || r.count(message.Ack, message.ReasonSuccess) != 0 {
		t.Errorf("attempts %v", l.of("slow"))
	}
	close(release)
	r.holds(r.plan.Queue, 4)
	r.flow.Lift(flow.Operator)
	r.acked(5)
	same(t, &l, "slow", inOrder("slow", 0, 2))
	same(t, &l, "a", []string{"a/0#0", "a/0#1", "a/0#2", "a/1#0", "a/2#0"})
	if n := testutil.ToFloat64(r.metrics().stale); n != 0 {
		t.Errorf("%v stale settlements", n)
	}
}

// TestReplicaTakesOver: after a drain another replica goes on where the first ended, with nothing out of order or twice.
func TestReplicaTakesOver(t *testing.T) {
	t.Parallel()
	var l ledger
	d := l.answers(func(*message.Message) message.Outcome {
		time.Sleep(5 * time.Millisecond)
		return answer(200)
	})
	s := settings{order: byKey, queueType: "quorum", concurrency: 4, prefetch: 20}
	r := start(t, d, s)
	r.publishKeyed("a", 0, 1)
	r.acked(1)
	other := r.replica(d, s)
	r.eventually("the other one waits", other.Active)
	for n := range 20 {
		for _, key := range []string{"a", "b"} {
			r.publishKeyed(key, n, n+1)
		}
	}
	if n := other.Received(); n != 0 {
		t.Fatalf("%d messages were delivered to the replica that waits", n)
	}
	before := r.metrics()
	if got := r.drain(time.Minute); got.Interrupted != 0 {
		t.Errorf("drained %+v", got)
	}
	took := int(testutil.ToFloat64(before.settled[message.Ack][message.ReasonSuccess]))
	other.acked(41 - took)
	same(t, &l, "a", append([]string{"a/0#0"}, inOrder("a", 0, 20)...))
	same(t, &l, "b", inOrder("b", 0, 20))
	other.holds(r.plan.Queue, 0)
}

// TestLostSessionInOrder: an attempt of a lost session keeps its key busy, and its message is handled again first.
func TestLostSessionInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	posting, release := make(chan struct{}, 4), make(chan struct{})
	var once atomic.Bool
	r := start(t, l.answers(func(m *message.Message) message.Outcome {
		if m.MessageID == "a/0" && once.CompareAndSwap(false, true) {
			posting <- struct{}{}
			<-release
			return answer(500)
		}
		return answer(200)
	}), settings{order: byKey})
	r.publishKeyed("a", 0, 3)
	<-posting
	r.proxy.Cut()
	r.publishKeyed("b", 0, 3)
	r.acked(3)
	same(t, &l, "a", []string{"a/0#0"})
	close(release)
	r.acked(6)
	same(t, &l, "a", []string{"a/0#0", "a/0#1", "a/1#0", "a/2#0"})
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

// TestNoMemoryInOrder: a message without a body holds its key; another delivery of it may have one.
func TestNoMemoryInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	r := start(t, l.answers(func(*message.Message) message.Outcome { return answer(200) }),
		settings{order: byKey, memory: 64 << 10, spool: broker.NewSpool(t.TempDir(), 0)})
	r.eventuallyDeclared()
	brokertest.Publish(r.t, r.ch, "", r.plan.Queue, amqp.Publishing{MessageId: "a/0", Body: make([]byte, 200<<10), DeliveryMode: 2, Headers: amqp.Table{"key": "a"}})
	r.publishKeyed("a", 1, 3)
	r.publishKeyed("b", 0, 3)
	r.eventually("two returns", func() bool { return r.count(message.Requeue, message.ReasonTooLarge) >= 2 })
	r.acked(3)
	same(t, &l, "b", inOrder("b", 0, 3))
	same(t, &l, "a", nil)
	r.eventually("the warning", func() bool { return r.Oversized() != "" }) // it ends between two deliveries when the machine is busy
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
	if err := s.pump(deliveries); err != errPaused { //nolint:errorlint // it is itself
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
			if attempts != 1 || c.returned.Load() != 2 {
				t.Errorf("%d attempts, %d returned", attempts, c.returned.Load())
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

// TestAttemptsAreOfOneMessage: without a message id another message may be the same, and begins anew.
func TestAttemptsAreOfOneMessage(t *testing.T) {
	t.Parallel()
	for id, want := range map[string]int{"": 0, "m": 1} {
		c, s := ordered(t, nil, func(*Options) {})
		for attempt := range 2 {
			d := benchDelivery(uint64(attempt+1), amqp.Table{"key": "a"}, time.Time{})
			d.MessageId, d.Redelivered = id, attempt > 0
			c.order.add(s, d)
			e := c.order.take().held
			if attempt > 0 && e.failed != want {
				t.Errorf("id %q: %d attempts, want %d", id, e.failed, want)
			}
			e.failed++
			c.order.hold(e, 0)
			c.order.drop(s)
			s = benchSession(t, c)
		}
	}
}

// TestLateAttemptHasADelay: what an attempt of a lost session asked for holds for the next delivery.
func TestLateAttemptHasADelay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		c, s := ordered(t, func(context.Context, *message.Message) message.Outcome {
			close(done)
			return answer(500)
		}, func(*Options) {})
		s.done = done
		s.pending = []*broker.Delivery{benchDelivery(1, amqp.Table{"key": "a"}, time.Now())}
		var r record
		d := s.next()
		r.begin(d)
		c.order.drop(s)
		c.handle(&r)
		for _, was := range c.order.kept {
			if was.failed == 1 && was.due.After(time.Now()) {
				return
			}
		}
		t.Errorf("remembered: %+v", c.order.kept)
	})
}

// TestLeavingDoesNotWaitForARate: a session that has to return everything does so at once.
func TestLeavingDoesNotWaitForARate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, s := ordered(t, always(200), func(o *Options) { o.Rates = []*rate.Limiter{rate.NewLimiter(rate.Every(time.Hour), 1)} })
		s.c.o.Rates[0].Allow()
		time.AfterFunc(time.Minute, s.leave)
		began := time.Now()
		s.returns(t, benchDelivery(1, amqp.Table{"key": "a"}, began))
		if took := time.Since(began); took != time.Minute {
			t.Errorf("after %v", took)
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
