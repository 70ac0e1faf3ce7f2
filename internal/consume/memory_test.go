package consume

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
	"weak"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// TestAMessageLargerThanMemory: without a file for it, it is held and given back, and what is behind it is handled;
// with one it is handed on whole.
func TestAMessageLargerThanMemory(t *testing.T) {
	t.Parallel()
	large := []byte(strings.Repeat("x", 3<<20))
	for name, spool := range map[string]*broker.Spool{"held": nil, "in a file": broker.NewSpool(t.TempDir(), 1<<30)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var behind, bytes atomic.Int64
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				if m.MessageID == "behind" {
					behind.Add(1)
				} else {
					bytes.Add(int64(len(m.Body)))
				}
				return answer(200)
			}), settings{memory: 1 << 20, spool: spool})
			r.send(amqp.Publishing{MessageId: "large", Body: large}, amqp.Publishing{MessageId: "behind", Body: []byte("small")})
			r.eventually("the message behind it", func() bool { return behind.Load() == 1 })
			if spool != nil {
				r.acked(2)
				if got := bytes.Load(); got != int64(len(large)) {
					t.Errorf("%d bytes were handed on", got)
				}
				return
			}
			r.eventually("it is tried again", func() bool { return r.count(message.Requeue, message.ReasonTooLarge) >= 2 })
			r.eventually("the warning", func() bool { // it ends between two deliveries when the machine is busy
				text := r.Oversized()
				return strings.Contains(text, "3145728 bytes") && strings.Contains(text, "SIDECAR_SPOOL_DIR")
			})
			if !strings.Contains(r.log.String(), `"no memory for a message"`) || bytes.Load() != 0 {
				t.Errorf("%d bytes were handed on", bytes.Load())
			}
			finding := r.Oversized
			r.drain(time.Minute)
			r.holds(r.plan.Queue, 1)
			r.eventually("the finding ends", func() bool { return finding() == "" })
		})
	}
}

// TestTriedAgainWhenMemoryIsFree: in order, too, a message that found no memory waits for that, not for a time.
func TestTriedAgainWhenMemoryIsFree(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	var posts atomic.Int64
	r := start(t, dispatcher(func(context.Context, *message.Message) message.Outcome {
		posts.Add(1)
		<-gate
		return answer(200)
	}), settings{memory: 1 << 20, missingHold: time.Hour, order: byKey})
	body := bytes.Repeat([]byte("b"), 700<<10)
	r.send(amqp.Publishing{MessageId: "1", Body: body, Headers: amqp.Table{"key": "a"}})
	r.eventually("the first is being handled", func() bool { return posts.Load() == 1 })
	r.send(amqp.Publishing{MessageId: "2", Body: body, Headers: amqp.Table{"key": "b"}})
	r.eventually("the second has no memory", func() bool { return r.Oversized() != "" })
	close(gate)
	r.acked(2)
}

// TestMemoryIsReleased: the memory of messages is free at the end, which the rig checks. More arrive at once
// than there is memory for, and the connection is cut.
func TestMemoryIsReleased(t *testing.T) {
	t.Parallel()
	body := []byte(strings.Repeat("y", 200<<10))
	statuses := map[string]int{"ok": 200, "parked": 503, "later": 425}
	var s seen
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		if s.Add(m.CorrelationID) > 2 && m.MessageID == "later" {
			return answer(200)
		}
		return answer(statuses[m.MessageID])
	}), settings{memory: 1 << 20, maxRetries: 1, concurrency: 4, prefetch: 16})
	for round := range 5 {
		for id := range statuses {
			r.send(amqp.Publishing{MessageId: id, CorrelationId: fmt.Sprint(id, round), Body: body, Headers: amqp.Table{"h": strings.Repeat("z", 1000)}})
		}
		if round == 3 {
			r.proxy.Cut()
			r.proxy.Restore(t)
		}
	}
	r.eventually("all have left", func() bool {
		return r.count(message.Ack, message.ReasonSuccess)+r.count(message.Park, message.ReasonMaxRetries)+
			r.count(message.Ack, message.ReasonReplaced) >= 15 // parked, and the link was cut before the ack
	})
	r.drain(5 * time.Second)
}

// referred are bodies and header texts that the app was given; weakly, to see whether anything refers to them.
type referred struct {
	mu  sync.Mutex
	all map[string][]weak.Pointer[byte]
}

func (r *referred) add(m *message.Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[string][]weak.Pointer[byte]{}
	}
	r.all["body"] = append(r.all["body"], weak.Make(&m.Body[0]))
	text, _ := m.Headers["h"].(string)
	r.all["headers"] = append(r.all["headers"], weak.Make(unsafe.StringData(text)))
}

// left collects garbage, and returns what is still referred to.
func (r *referred) left() (n map[string]int) {
	runtime.GC()
	r.mu.Lock()
	defer r.mu.Unlock()
	n = map[string]int{}
	for what, list := range r.all {
		for _, p := range list {
			if p.Value() != nil {
				n[what]++
			}
		}
	}
	return n
}

// TestMemoryThatIsNotCountedIsNotReferredTo: while it is idle, and while messages are held here without their bodies, a
// consumer refers to nothing whose memory was given back.
func TestMemoryThatIsNotCountedIsNotReferredTo(t *testing.T) {
	t.Parallel()
	const n = 8
	first := func(status int) func(*seen, *message.Message) message.Outcome {
		return func(s *seen, m *message.Message) message.Outcome {
			if s.Add(m.MessageID) == 1 {
				return answer(status)
			}
			return answer(200)
		}
	}
	later := func(_ *seen, m *message.Message) message.Outcome { return inAnHour(425)(context.Background(), m) }
	for name, c := range map[string]struct {
		settings
		answer func(*seen, *message.Message) message.Outcome
		held   bool // for an hour
	}{
		"acked":             {answer: first(200)},
		"rejected to wait":  {answer: first(409)},
		"published to wait": {answer: first(409), settings: settings{change: func(p *topology.Plan) { p.Waits[0].By = topology.ByPublish }}},
		"parked":            {answer: func(*seen, *message.Message) message.Outcome { return answer(409) }, settings: settings{maxRetries: 1}},
		"held":              {answer: later, held: true},
		"in order":          {answer: first(409), settings: settings{order: byKey}},
		"a batch, acked":    {answer: first(200), settings: settings{batch: Batch{Size: 4, Wait: time.Second, Bytes: 1 << 20}}},
		"a batch, parked": {answer: func(*seen, *message.Message) message.Outcome { return answer(409) }, settings: settings{
			maxRetries: 1, batch: Batch{Size: 4, Wait: time.Second, Bytes: 1 << 20},
		}},
		"a batch, held": {answer: later, held: true, settings: settings{batch: Batch{Size: 4, Wait: time.Second, Bytes: 1 << 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all referred
			var s seen
			one := func(m *message.Message) message.Outcome {
				all.add(m)
				return c.answer(&s, m)
			}
			d := dispatcher(func(_ context.Context, m *message.Message) message.Outcome { return one(m) })
			c.concurrency, c.prefetch = 4, 40
			r := start(t, d, c.settings)
			for i := range n {
				r.send(amqp.Publishing{
					MessageId: fmt.Sprint(i), Body: bytes.Repeat([]byte("b"), 200<<10), Headers: amqp.Table{"h": strings.Repeat("h", 8<<10), "key": fmt.Sprint(i)},
				})
			}
			r.eventually("all have ended, or are held", func() bool {
				if c.held {
					return r.Delayed() == n
				}
				return r.count(message.Ack, message.ReasonSuccess)+r.count(message.Park, message.ReasonMaxRetries) == n
			})
			least := int64(0)
			if c.held { // what is left of each is counted
				least = n << 10
			}
			r.eventually("their memory is given back", func() bool { held := r.memory.Held(); return held >= least && held <= 2*least })
			var left map[string]int
			for range 100 { // a goroutine may not have returned yet
				if left = all.left(); len(left) == 0 {
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("of %d messages nothing is counted, and referred to: %v", n, left)
		})
	}
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
