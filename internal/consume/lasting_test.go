package consume

import (
	"context"
	"maps"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// parking is an app that refuses every message with a problem document, and holds its answer to the first one.
type parking struct {
	seen
	hold   chan struct{}
	status int
	by     message.Disposition
}

func (a *parking) Dispatch(_ context.Context, m *message.Message) message.Outcome {
	if a.Add("posts") == 1 {
		<-a.hold
	}
	o := answer(a.status)
	o.Disposition, o.At, o.Detail = a.by, time.Now(), "the reason"
	o.Problem = &message.Problem{Type: "urn:problem", Title: "a title", Detail: "a detail"}
	o.Answer = "the answer"
	return o
}

// TestParkedFromMemory: a message whose last answer came while the link was away is parked with the same headers as the
// next one, which is parked at once.
func TestParkedFromMemory(t *testing.T) {
	t.Parallel()
	none := func(p *topology.Plan) { p.MaxRetries = 0 }
	for name, c := range map[string]struct {
		settings
		status int
		by     message.Disposition
	}{
		"no retries":  {settings{change: none}, 500, message.DispositionNone},
		"disposition": {settings{}, 200, message.DispositionPark},
		"in order":    {settings{change: none, order: byKey}, 500, message.DispositionNone},
		"batch":       {settings{change: none, batch: Batch{Size: 5, Wait: time.Millisecond, Bytes: 1 << 20}}, 500, message.DispositionNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			app := &parking{hold: make(chan struct{}), status: c.status, by: c.by}
			s := c.settings
			s.concurrency, s.prefetch, s.opens = 1, 2, true
			r := start(t, app, s)
			r.publish("a")
			r.eventually("the first POST", func() bool { return app.Of("posts") == 1 })
			r.cut()
			close(app.hold)
			remembered := final(r.parked())
			r.eventually("the log line", func() bool { return strings.Contains(r.log.String(), `"remembered":true`) })
			if app.Total() != 1 {
				t.Errorf("%d POSTs", app.Total())
			}
			r.publish("a")
			at := final(r.parked())
			if at["x-final-answer"] == nil || at["x-final-problem-title"] == nil || !reflect.DeepEqual(remembered, at) {
				t.Errorf("parked from memory: %v\nparked at once:     %v", remembered, at)
			}
		})
	}
}

// TestLostAckOfAParkedMessage: the link is cut when the copy was published. The message returns, and is acked because it
// has been parked.
func TestLostAckOfAParkedMessage(t *testing.T) {
	t.Parallel()
	var s seen
	var r *rig
	var once sync.Once
	lost := make(chan (<-chan struct{}), 1)
	r = start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		s.Add(m.MessageID)
		lost <- m.Lost
		return answer(409)
	}), settings{
		change: func(p *topology.Plan) { p.MaxRetries = 0 }, publisher: func(p Publisher) Publisher {
			return publisherFunc(func(ctx context.Context, m *message.Publication) error {
				defer once.Do(func() {
					r.proxy.Cut()
					<-<-lost
				})
				return p.Publish(ctx, m)
			})
		},
	})
	r.publish("a")
	r.counted(1, message.Ack, message.ReasonReplaced)
	if r.parked(); s.Total() != 1 {
		t.Errorf("%d attempts", s.Total())
	}
	r.holds(r.plan.Queue, 0)
}

// final are the headers about the park, without its time.
func final(d amqp.Delivery) amqp.Table {
	maps.DeleteFunc(d.Headers, func(name string, _ any) bool {
		return !strings.HasPrefix(name, "x-final-") || name == topology.HeaderFinalAt
	})
	return d.Headers
}

// TestTextsAreBounded: outcomes whose texts find no room are not kept, and those that end make room.
func TestTextsAreBounded(t *testing.T) {
	t.Parallel()
	c := New(benchOptions(t, 1))
	defer c.Drain(t.Context())
	k := &c.remembered
	o := &message.Outcome{Status: 500, Answer: strings.Repeat("a", maxTexts/4), Problem: &message.Problem{Title: "t"}}
	for id := range uint64(4) {
		k.expect(1+id, o)
	}
	k.expect(5, &plain[0])
	for id, want := range map[uint64]bool{1: true, 2: true, 3: true, 4: false, 5: true} {
		if known := c.knows(id); known != want {
			t.Errorf("message %d is known: %v", id, known)
		}
	}
	if k.texts != 0 || k.held != 0 {
		t.Errorf("%d bytes, %d copies are left", k.texts, k.held)
	}
}
