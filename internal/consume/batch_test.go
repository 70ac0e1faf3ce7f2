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
	"golang.org/x/time/rate"

	"sidecar/internal/amqpwire"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

// batched takes the place of the HTTP client for batches. It writes down the ids and retry counts of each POST.
type batched struct {
	answer func(ms []*message.Message) (message.Outcome, []message.Outcome)
	route  func(m *message.Message) string

	mu    sync.Mutex
	posts []string
}

func (d *batched) DispatchBatch(_ context.Context, ms []*message.Message, _ message.TraceContext) (message.Outcome, []message.Outcome) {
	var ids []string
	for _, m := range ms {
		ids = append(ids, fmt.Sprintf("%s#%d", m.MessageID, m.RetryCount))
	}
	d.mu.Lock()
	d.posts = append(d.posts, strings.Join(ids, " "))
	d.mu.Unlock()
	return d.answer(ms)
}

func (d *batched) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	whole, each := d.DispatchBatch(ctx, []*message.Message{m}, message.TraceContext{})
	if each != nil {
		return each[0]
	}
	return whole
}

func (d *batched) Route(m *message.Message) (int, string) {
	if d.route == nil {
		return 0, ""
	}
	return 1, d.route(m)
}

// all returns the POSTs so far, sorted.
func (d *batched) all() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.posts))
}

func (d *batched) wants(t *testing.T, want ...string) {
	t.Helper()
	if got := d.all(); !slices.Equal(got, want) {
		t.Errorf("POSTs:\n%q, want\n%q", got, want)
	}
}

// eachOf answers every message of a batch by itself.
func eachOf(one func(m *message.Message) message.Outcome) func([]*message.Message) (message.Outcome, []message.Outcome) {
	return func(ms []*message.Message) (message.Outcome, []message.Outcome) {
		each := make([]message.Outcome, len(ms))
		for i, m := range ms {
			each[i] = one(m)
		}
		return answer(200), each
	}
}

// severalGet answers a batch of several messages with o as a whole, and a message alone with 200.
func severalGet(o message.Outcome) func([]*message.Message) (message.Outcome, []message.Outcome) {
	return func(ms []*message.Message) (message.Outcome, []message.Outcome) {
		if len(ms) > 1 {
			return o, nil
		}
		return answer(200), []message.Outcome{answer(200)}
	}
}

// three gathers three messages for a POST. With one worker there is no ramp-up in which messages are POSTed alone.
func three() settings {
	return settings{concurrency: 1, prefetch: 9, batch: Batch{Size: 3, Wait: time.Hour, Bytes: 1 << 20}}
}

func (r *rig) split() int { return int(testutil.ToFloat64(r.metrics().split)) }

// TestBatchIsSettledByMessage: those that fail go out again, each alone, although they would fill a batch.
func TestBatchIsSettledByMessage(t *testing.T) {
	t.Parallel()
	d := &batched{answer: eachOf(func(m *message.Message) message.Outcome {
		if strings.Contains("bdf", m.MessageID) && m.RetryCount < 2 {
			return answer(503)
		}
		return answer(200)
	})}
	r := start(t, d, three())
	r.publish("a", "b", "c", "d", "e", "f")
	r.acked(6)
	r.counted(6, message.Retry, message.ReasonServerError)
	d.wants(t, "a#0 b#0 c#0", "b#1", "b#2", "d#0 e#0 f#0", "d#1", "d#2", "f#1", "f#2")
	if r.split() != 0 {
		t.Errorf("%d batches split", r.split())
	}
}

// TestFailedBatch: what the failure of a batch says about its messages is not known, so each of them goes out again alone,
// and only a failure there is counted. An answer that acks all of them or gives them back is taken for each.
func TestFailedBatch(t *testing.T) {
	t.Parallel()
	alone := []string{"a#0", "a#0 b#0 c#0", "b#0", "c#0"}
	for name, c := range map[string]struct {
		whole      message.Outcome
		fails      bool // b fails alone, too, once
		maxRetries int  // below 0: none
		action     message.Action
		reason     message.Reason
		posts      []string
		split      int
	}{
		"not counted": {whole: answer(500), fails: true, posts: slices.Insert(slices.Clone(alone), 3, "b#1"), split: 1},
		"no retries":  {whole: answer(500), maxRetries: -1, posts: alone, split: 1},
		"no answer":   {whole: message.Outcome{Failure: message.FailureMalformed, RetryAfter: -1}, posts: alone, split: 1},
		"park":        {whole: message.Outcome{Status: 200, Disposition: message.DispositionPark, RetryAfter: -1}, posts: alone, split: 1},
		"ack": {
			whole:  message.Outcome{Status: 500, Disposition: message.DispositionAck, RetryAfter: -1},
			action: message.Ack, reason: message.ReasonDisposition, posts: alone[1:2],
		},
		"too early":    {whole: answer(425), action: message.Requeue, reason: message.ReasonTooEarly, posts: alone},
		"app is down":  {whole: refused, action: message.Release, reason: message.ReasonAppDown, posts: alone},
		"a panic here": {whole: message.Outcome{Failure: message.FailurePanic}, action: message.Requeue, reason: message.ReasonPanic, posts: alone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := &batched{answer: func(ms []*message.Message) (message.Outcome, []message.Outcome) {
				switch {
				case len(ms) > 1 && c.whole.Failure == message.FailurePanic:
					panic("a bug")
				case len(ms) > 1 || c.fails && ms[0].MessageID == "b" && ms[0].RetryCount == 0:
					return c.whole, nil
				}
				return answer(200), []message.Outcome{answer(200)}
			}}
			s := three()
			s.change = func(p *topology.Plan) {
				if c.maxRetries < 0 {
					p.MaxRetries = 0
				}
			}
			r := start(t, d, s)
			r.publish("a", "b", "c")
			if c.action != message.Ack || c.reason == message.ReasonSuccess {
				r.acked(3)
			}
			if c.split == 0 {
				r.counted(3, c.action, c.reason)
			}
			d.wants(t, c.posts...)
			if r.split() != c.split || strings.Contains(r.log.String(), `"batch failed"`) != (c.split > 0) {
				t.Errorf("%d batches split", r.split())
			}
		})
	}
}

// TestRetryAfterOnABatch: the replica pauses, its messages go back uncounted and are alone after that.
func TestRetryAfterOnABatch(t *testing.T) {
	t.Parallel()
	whole := answer(503)
	whole.RetryAfter = time.Hour
	d := &batched{answer: severalGet(whole)}
	r := start(t, d, three())
	r.publish("a", "b", "c")
	r.eventually("the pause", func() bool { return r.heldFor(flow.RetryAfter) && !r.Active() })
	r.holds(r.plan.Queue, 3)
	r.counted(3, message.Release, message.ReasonUndispatched)
	r.flow.Lift(flow.RetryAfter)
	r.acked(3)
	d.wants(t, "a#0", "a#0 b#0 c#0", "b#0", "c#0")
}

// TestBatchFailsBehindAPause: no pump takes its messages any more, so they go back to the queue.
func TestBatchFailsBehindAPause(t *testing.T) {
	t.Parallel()
	posted, hold := make(chan struct{}), make(chan struct{})
	d := &batched{answer: func(ms []*message.Message) (message.Outcome, []message.Outcome) {
		if len(ms) > 1 {
			close(posted)
			<-hold
			return answer(500), nil
		}
		return answer(200), []message.Outcome{answer(200)}
	}}
	r := start(t, d, three())
	r.publish("a", "b", "c")
	<-posted
	r.flow.Hold(flow.Operator, "test")
	r.eventually("the consumer is cancelled", func() bool { return !r.Active() })
	close(hold)
	r.holds(r.plan.Queue, 3)
	r.counted(3, message.Release, message.ReasonUndispatched)
	r.flow.Lift(flow.Operator)
	r.acked(3)
}

// TestBatchOfALostLink: its messages are delivered again, each for a POST of its own.
func TestBatchOfALostLink(t *testing.T) {
	t.Parallel()
	hold := make(chan struct{})
	d := &batched{answer: func(ms []*message.Message) (message.Outcome, []message.Outcome) {
		if len(ms) > 1 {
			<-hold
			return answer(500), nil
		}
		return answer(200), []message.Outcome{answer(200)}
	}}
	s := three()
	s.concurrency, s.prefetch = 2, 12
	r := start(t, d, s)
	r.eventually("the ramp-up is over", func() bool { return !r.flow.Ramping() })
	r.publish("a", "b", "c", "waits") // the last one is in a batch that is not full
	r.eventually("the POST", func() bool { return r.Inflight() == 3 })
	r.cut()
	close(hold)
	r.acked(4)
	d.wants(t, "a#0", "a#0 b#0 c#0", "b#0", "c#0", "waits#0")
}

// TestBatchesInOrder: a batch has one message of a key, and a failed batch keeps the order of each.
func TestBatchesInOrder(t *testing.T) {
	t.Parallel()
	var l ledger
	d := &batched{answer: func(ms []*message.Message) (message.Outcome, []message.Outcome) {
		keys := map[string]bool{}
		for _, m := range ms {
			key, _, _ := strings.Cut(m.MessageID, "/")
			if keys[key] {
				t.Errorf("two messages of key %s in one POST", key)
			}
			keys[key] = true
		}
		if len(ms) > 1 && ms[0].MessageID == "a/1" {
			return answer(500), nil
		}
		each := make([]message.Outcome, len(ms))
		for i, m := range ms {
			each[i] = l.answers(func(*message.Message) message.Outcome { return answer(200) })(context.Background(), m)
		}
		return answer(200), each
	}}
	s := three()
	s.order, s.batch.Wait = "header:key", time.Millisecond
	r := start(t, d, s)
	for n := range 5 {
		for _, key := range []string{"a", "b", "c"} {
			r.publishKeyed(key, n, n+1)
		}
	}
	r.acked(15)
	for _, key := range []string{"a", "b", "c"} {
		same(t, &l, key, inOrder(key, 0, 5))
	}
}

// TestEachVerdictCounts for the breaker and for an app that refuses everything, also behind a first one that says
// something else. Each message is parked by its verdict, so no further attempt counts.
func TestEachVerdictCounts(t *testing.T) {
	t.Parallel()
	const size = 30
	for reason, statuses := range map[flow.Reason][2]int{flow.Breaker: {200, 503}, flow.AppRejectsAll: {503, 404}} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			var posts atomic.Int64
			d := &batched{answer: eachOf(func(*message.Message) message.Outcome {
				if posts.Add(1) == 1 {
					return answer(statuses[0])
				}
				return answer(statuses[1])
			})}
			r := start(t, d, settings{
				concurrency: 1, prefetch: size, batch: Batch{Size: size, Wait: time.Hour, Bytes: 1 << 20},
				change: func(p *topology.Plan) { p.MaxRetries = 0 },
			})
			r.publish(bodies(size)...)
			r.eventually("the verdicts are carried out", func() bool { return r.count(message.Park, message.ReasonMaxRetries) >= size-1 })
			if !strings.Contains(r.log.String(), `"msg":"paused","reason":"`+string(reason)+`"`) {
				t.Error("no pause")
			}
		})
	}
}

// TestRatesCountEachMessageOfABatch: a batch of five is five messages for SIDECAR_RATE.
func TestRatesCountEachMessageOfABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := benchOptions(t, 4)
		began := time.Now()
		var n, last atomic.Int64
		one := dispatcher(func(context.Context, *message.Message) message.Outcome {
			last.Store(int64(time.Since(began)))
			if most := 5 + int64(10*time.Since(began).Seconds()+1e-6); n.Add(1) > most {
				t.Errorf("%d after %v", n.Load(), time.Since(began))
			}
			return answer(200)
		})
		o.Dispatcher, o.Batch = one, Batch{Size: 5, Wait: time.Second, Bytes: 1 << 20, Dispatcher: eachAlone{one}}
		o.Prefetch, o.Rates = 40, []*rate.Limiter{rate.NewLimiter(10, 5)}
		c := New(o)
		t.Cleanup(func() { c.Drain(context.Background()) })
		s := benchSession(t, c)
		s.pump.collector = newCollector(c.o.Batch)
		s.pump.overdue = time.AfterFunc(time.Hour, func() { signal(c.woken) })
		deliveries := amqpwire.NewDeliveries(0)
		for tag := range 20 {
			deliveries.Add(benchDelivery(uint64(tag+1), nil, time.Now()))
		}
		ended := make(chan struct{})
		go func() { _ = s.take(deliveries); s.leftover(); s.freePending(); close(ended) }()
		t.Cleanup(func() { c.Stop(); <-ended })
		time.Sleep(time.Minute)
		synctest.Wait()
		if took := time.Duration(last.Load()); n.Load() != 20 || took < 1500*time.Millisecond {
			t.Errorf("%d in %v, want 20 in 1.5 s", n.Load(), took)
		}
	})
}
