package consume

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// TestMessagesThatDifferAreTwo: the link is cut while the first message of each pair is POSTed and the second, with the
// same id, has been delivered. Each is POSTed once: none is acked for the other, and none is POSTed again. broker
// TestIdentity has all that two messages can differ in.
func TestMessagesThatDifferAreTwo(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16+1)
	pairs := [][2]amqp.Publishing{
		{{Body: append(bytes.Clone(large), 'a')}, {Body: append(bytes.Clone(large), 'b')}},
		{{Headers: amqp.Table{"h": "a"}, Body: []byte("c")}, {Headers: amqp.Table{"h": "b"}, Body: []byte("c")}},
	}
	for name, s := range map[string]settings{"memory": {}, "files": {memory: 1 << 20, spool: broker.NewSpool(t.TempDir(), 1<<30)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var posts apptest.Tally
			free := make(chan struct{})
			s.concurrency, s.prefetch, s.opens = len(pairs), 2*len(pairs), true
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				posts.Add(fmt.Sprint(m.MessageID, m.Headers["h"], string(m.Body[len(m.Body)-1:])))
				<-free
				return answer(200)
			}), s)
			r.eventuallyDeclared()
			for i := range 2 {
				for n, pair := range pairs {
					pair[i].MessageId = fmt.Sprint(n)
					brokertest.Publish(t, r.ch, "", r.plan.Queue, pair[i])
				}
				if i == 0 {
					r.eventually("the first of each pair is POSTed", func() bool { return posts.Total() == len(pairs) })
				}
			}
			r.holds(r.plan.Queue, 0)
			r.cut()
			close(free)
			r.acked(2 * len(pairs))
			for _, of := range []string{"0<nil>a", "0<nil>b", "1ac", "1bc"} {
				if n := posts.Of(of); n != 1 {
					t.Errorf("%d POSTs of %s", n, of)
				}
			}
		})
	}
}
