package consume

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/message"
)

// unlike are pairs of messages that differ in one thing. Both of a pair get the same id.
func unlike() map[string][2]amqp.Publishing {
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<16+1)
	with := func(h any) amqp.Publishing { return amqp.Publishing{Headers: amqp.Table{"h": h}} }
	pair := func(a, b any) [2]amqp.Publishing { return [2]amqp.Publishing{with(a), with(b)} }
	at := time.Unix(1, 0)
	return map[string][2]amqp.Publishing{
		"body":                  {{Body: []byte("a")}, {Body: []byte("b")}},
		"body behind the first": {{Body: append(bytes.Clone(large), 'a')}, {Body: append(bytes.Clone(large), 'b')}},
		"length of the body":    {{Body: large}, {Body: large[:len(large)-1]}},
		"reply_to":              {{ReplyTo: "a"}, {ReplyTo: "b"}},
		"content_type":          {{ContentType: "a/a"}, {ContentType: "a/b"}},
		"content_encoding":      {{ContentEncoding: "gzip"}, {ContentEncoding: "br"}},
		"correlation_id":        {{CorrelationId: "a"}, {}},
		"app_id":                {{AppId: "a"}, {AppId: "b"}},
		"user_id":               {{UserId: "guest"}, {}},
		"type":                  {{Type: "a"}, {Type: "b"}},
		"priority":              {{Priority: 1}, {Priority: 2}},
		"expiration":            {{Expiration: "3600000"}, {Expiration: "3600001"}},
		"delivery_mode":         {{DeliveryMode: 1}, {DeliveryMode: 2}},
		"timestamp":             {{Timestamp: at}, {Timestamp: at.Add(time.Second)}},
		"no timestamp":          {{Timestamp: time.Unix(0, 0)}, {}},
		"no header":             {with("a"), {}},
		"arrays":                pair([]any{}, []any{[]any{}, []any{}}),
		"an array and a table":  pair([]any{[]any{}}, []any{amqp.Table{}}),
		"nothing and no array":  pair(nil, []any{}),
		"nested":                pair(amqp.Table{"a": amqp.Table{"b": "c"}}, amqp.Table{"b": amqp.Table{"a": "c"}}),
		"order of an array":     pair([]any{"a", "b"}, []any{"b", "a"}),
		"integers":              pair(int32(1), int64(1)),
		"an integer and a text": pair(int32(1), "1"),
		"true":                  pair(true, int8(1)),
		"bytes":                 pair([]byte("a"), "a"),
		"decimal":               pair(amqp.Decimal{Scale: 1, Value: 10}, amqp.Decimal{Scale: 0, Value: 1}),
		"time":                  pair(at, int64(1)),
		"zeros":                 pair(float64(0), float32(0)),
		"names":                 {{Headers: amqp.Table{"a": "b", "c": "d"}}, {Headers: amqp.Table{"a": "d", "c": "b"}}},
	}
}

// heldApp holds each attempt until free is closed, and counts attempts by all that an app can see of a message.
type heldApp struct {
	mu    sync.Mutex
	posts map[string]int
	free  chan struct{}
}

func (a *heldApp) Dispatch(_ context.Context, m *message.Message) message.Outcome {
	h := maps.Clone(m.Headers)
	maps.DeleteFunc(h, func(name string, _ any) bool { return name == "x-delivery-count" || name == "x-acquired-count" })
	end := m.Body[max(0, len(m.Body)-1):]
	text := fmt.Sprintf("%s %d %q %T %v %q", m.MessageID, len(m.Body), end, h["h"], h, []any{m.ReplyTo, m.ContentType, m.ContentEncoding,
		m.CorrelationID, m.AppID, m.UserID, m.Type, m.Priority, m.Expiration, m.Timestamp.Unix()})
	a.mu.Lock()
	a.posts[text]++
	a.mu.Unlock()
	<-a.free
	return answer(200)
}

func (a *heldApp) total() (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, posts := range a.posts {
		n += posts
	}
	return n
}

// TestMessagesThatDifferAreTwo: the link is cut while the first message of each pair is POSTed and the second, with the
// same id, has been delivered. Each is POSTed once: none is acked for the other, and none is POSTed again.
func TestMessagesThatDifferAreTwo(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]settings{
		"classic": {},
		"quorum":  {queueType: "quorum"},
		"files":   {memory: 1 << 20, spool: broker.NewSpool(t.TempDir(), 1<<30)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pairs := unlike()
			if s.spool != nil {
				maps.DeleteFunc(pairs, func(_ string, p [2]amqp.Publishing) bool { return len(p[0].Body) < 1<<20 })
			}
			app := &heldApp{posts: map[string]int{}, free: make(chan struct{})}
			s.concurrency, s.prefetch, s.opens, s.quiet = len(pairs), 2*len(pairs), true, true
			r := start(t, app, s)
			r.eventuallyDeclared()
			for i := range 2 {
				for _, name := range slices.Sorted(maps.Keys(pairs)) {
					p := pairs[name][i]
					p.MessageId = name
					brokertest.Publish(t, r.ch, "", r.plan.Queue, p)
				}
				if i == 0 {
					r.eventually("the first of each pair is POSTed", func() bool { return app.total() == len(pairs) })
				}
			}
			r.holds(r.plan.Queue, 0)
			before := r.sessions.Load()
			r.proxy.Cut()
			r.eventually("the next session", func() bool { return r.sessions.Load() > before && r.Active() })
			close(app.free)
			r.eventually("the queue is empty", func() bool {
				q, err := r.ch.QueueDeclarePassive(r.plan.Queue, true, false, false, false, nil)
				return err == nil && q.Messages == 0 && r.Inflight() == 0 && app.total() >= 2*len(pairs)
			})
			r.drain(soon)
			want := 2 * len(pairs)
			if _, ok := pairs["delivery_mode"]; ok {
				want-- // an app cannot see it
			}
			for text, posts := range app.posts {
				if posts != 1 && !strings.HasPrefix(text, "delivery_mode") {
					t.Errorf("%d POSTs of %s", posts, text)
				}
			}
			if len(app.posts) != want || app.total() != 2*len(pairs) {
				t.Errorf("%d of %d different messages were POSTed, %d times", len(app.posts), want, app.total())
			}
		})
	}
}
