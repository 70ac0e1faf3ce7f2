package consume

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
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

func TestLastingOutcomes(t *testing.T) {
	t.Parallel()
	lost := topology.Settlement{}.Released(message.ReasonSessionLost)
	with := func(s topology.Settlement, o message.Outcome) topology.Settlement {
		s.Verdict.Cause = o
		return s
	}
	pub, ack := &message.Publication{}, topology.Settlement{Final: topology.FinalAck}
	for name, c := range map[string]struct {
		by   topology.Settlement
		want *message.Outcome
	}{
		"acked":              {by: with(ack, answer(204)), want: &message.Outcome{Status: 204, RetryAfter: -1}},
		"acked by its word":  {by: with(ack, message.Outcome{Status: 500, Disposition: message.DispositionAck, Detail: "known"}), want: &message.Outcome{Status: 500, Disposition: message.DispositionAck, Detail: "known"}},
		"rejected":           {by: with(topology.Settlement{Final: topology.FinalReject}, message.Outcome{Status: 503}), want: &message.Outcome{Status: 503}},
		"too late":           {by: with(lost, message.Outcome{Status: 503}), want: &message.Outcome{Status: 503}},
		"parked":             {by: topology.Settlement{Final: topology.FinalAck, Publish: pub}, want: &replaced},
		"waits elsewhere":    {by: topology.Settlement{Final: topology.FinalAck, Detour: pub}, want: &replaced},
		"too early":          {by: with(topology.Settlement{Final: topology.FinalRequeue, Verdict: message.Verdict{Reason: message.ReasonTooEarly}}, answer(425))},
		"delayed by a queue": {by: with(topology.Settlement{Final: topology.FinalDelay}, answer(503))},
		"a panic":            {by: lost},
		"a panic in a batch": {by: with(lost, message.Outcome{Failure: message.FailurePanic})},
		"interrupted":        {by: with(lost, message.Outcome{Failure: message.FailureInterrupted})},
		"not POSTed":         {by: with(ack, message.Outcome{Failure: message.FailureForeign})},
		"the app is away":    {by: with(topology.Settlement{}.Released(message.ReasonAppDown), message.Outcome{Failure: message.FailureRefused})},
	} {
		if got := lasting(&c.by); (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

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

// TestDeferredMessagesLoseNoRetry: the app fails everything until messages that failed before have been deferred again
// and again. Each goes on with the retries it had: there are more of them than the machine, however busy, fits in before
// the breaker opens.
func TestDeferredMessagesLoseNoRetry(t *testing.T) {
	t.Parallel()
	f := &failing{}
	for name, s := range map[string]settings{
		"classic":       {},
		"native":        {native: true},
		"in order":      {order: byKey},
		"not published": {publisher: f.before},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const n = 40
			var well atomic.Bool
			s.concurrency, s.prefetch, s.maxRetries, s.retryDelay = 4, 64, 1000, 50*time.Millisecond
			var posts seen
			r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
				if before := posts.Add(m.MessageID) - 1; m.RetryCount != before {
					t.Errorf("%s has %d retries after %d attempts", m.MessageID, m.RetryCount, before)
				}
				if well.Load() {
					return answer(200)
				}
				return answer(500)
			}), s)
			for i := range n {
				r.publishKeyed(fmt.Sprint(i), 0, 1)
			}
			r.eventually("messages are deferred", func() bool { return r.count(message.Release, message.ReasonDeferred) >= 2*n })
			well.Store(true)
			r.acked(n)
		})
	}
}

type refusing struct{}

func (refusing) Publish(context.Context, *message.Publication) error { return errors.New("alarm") }

// TestDetourThatFailsIsHeld: a message that cannot be put behind the others is not delivered again before its time.
func TestDetourThatFailsIsHeld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := benchOptions(t, 1)
		o.Publisher = refusing{}
		c := New(o)
		t.Cleanup(func() { c.Drain(context.Background()) })
		began := time.Now()
		s := benchSession(t, c)
		s.detour(&attempt{delivery: delivery{session: s}}, topology.Settlement{Detour: &message.Publication{}, Hold: time.Second})
		if held := time.Since(began); held < time.Second {
			t.Errorf("held for %v", held)
		}
	})
}
