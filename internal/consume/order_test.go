package consume

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	amqp "github.com/rabbitmq/amqp091-go"

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
