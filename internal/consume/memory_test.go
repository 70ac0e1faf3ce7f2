package consume

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
)

// send publishes messages straight into the service's queue.
func (r *rig) send(list ...amqp.Publishing) {
	r.t.Helper()
	r.eventuallyDeclared()
	for _, m := range list {
		confirm := must.Get(r.ch.PublishWithDeferredConfirm("", r.plan.Queue, true, false, m))(r.t)
		if !confirm.Wait() {
			r.t.Fatal("a message was not confirmed")
		}
	}
}

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
	send := func(round string) {
		for _, id := range []string{"ok", "parked", "later"} {
			r.send(amqp.Publishing{MessageId: id, CorrelationId: id + round, Body: body, Headers: amqp.Table{"h": strings.Repeat("z", 1000)}})
		}
	}
	left := func(n int) {
		r.eventually("all have left", func() bool {
			return r.count(message.Ack, message.ReasonSuccess)+r.count(message.Park, message.ReasonMaxRetries)+
				r.count(message.Ack, message.ReasonReplaced) >= n // parked, and the link was cut before the ack
		})
	}
	for round := range 5 {
		send(string(rune('a' + round)))
	}
	r.proxy.Cut()
	r.proxy.Restore(t)
	left(15)
	send("z")
	left(18)
	r.drain(5 * time.Second)
}
