package consume

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/retry"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// first answers the first attempt of a message as it says, and later ones with a 200.
func first(o message.Outcome) dispatcher {
	var s seen
	return func(_ context.Context, m *message.Message) message.Outcome {
		if s.Add(m.MessageID) == 1 {
			return o
		}
		return answer(200)
	}
}

// asks is a 200 with what the app asks for by Amqp-Disposition.
func asks(d message.Disposition) message.Outcome {
	o := answer(200)
	o.Disposition = d
	return o
}

// settledLines returns the lines about messages that ended with that outcome and reason.
func (r *rig) settledLines(outcome, reason string) (all []map[string]any) {
	r.t.Helper()
	for _, text := range r.log.Lines(`"msg":"settled"`) {
		var line map[string]any
		must.Do(r.t, json.Unmarshal([]byte(text), &line))
		if line["outcome"] == outcome && line["reason"] == reason {
			all = append(all, line)
		}
	}
	return all
}

// TestSettledLinesHaveTheSameFields: whatever happens to a message, and whichever goroutine settles it, its line says
// which message it was.
func TestSettledLinesHaveTheSameFields(t *testing.T) {
	t.Parallel()
	batches := settings{batch: Batch{Size: 10, Wait: 10 * time.Millisecond, Bytes: 1 << 20}}
	inOrder := settings{order: "queue"}
	published := settings{change: func(p *topology.Plan) { *p = *p.WithoutReject() }}
	posting, cut := make(chan struct{}, 1), make(chan struct{})
	for name, c := range map[string]struct {
		app             Dispatcher
		s               settings
		outcome, reason string
		then            func(*rig) // after the message was published
	}{
		"acked":                     {app: first(answer(200)), outcome: "ack", reason: "success"},
		"acked in order":            {app: first(answer(200)), s: inOrder, outcome: "ack", reason: "success"},
		"discarded":                 {app: first(asks(message.DispositionDiscard)), outcome: "discard", reason: "disposition"},
		"parked":                    {app: first(asks(message.DispositionPark)), outcome: "park", reason: "disposition"},
		"an unknown word":           {app: first(message.Outcome{Status: 200, RetryAfter: -1, Unknown: true, Detail: "because"}), outcome: "ack", reason: "success"},
		"retried by a reject":       {app: first(answer(500)), outcome: "retry", reason: "server_error"},
		"retried by a publish":      {app: first(answer(500)), s: published, outcome: "retry", reason: "server_error"},
		"retried in order":          {app: first(answer(500)), s: inOrder, outcome: "retry", reason: "server_error"},
		"retried by the queue":      {app: first(answer(500)), s: native, outcome: "retry", reason: "server_error"},
		"requeued":                  {app: first(answer(425)), outcome: "requeue", reason: "too_early"},
		"an app that is down":       {app: first(refused), outcome: "release", reason: "app_down"},
		"one that is down, batches": {app: first(refused), s: batches, outcome: "release", reason: "app_down"},
		"no memory": {
			app: always(200), outcome: "requeue", reason: "too_large",
			s: settings{memory: 64 << 10, spool: broker.NewSpool(t.TempDir(), 0)},
		},
		"a panic": {app: dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
			if !m.Redelivered {
				panic("over a message")
			}
			return answer(200)
		}), outcome: "requeue", reason: "panic"},
		"a stop": {app: dispatcher(func(ctx context.Context, _ *message.Message) message.Outcome {
			<-ctx.Done()
			return message.Outcome{Failure: message.FailureInterrupted, RetryAfter: -1, At: time.Now()}
		}), outcome: "release", reason: "shutdown", then: func(r *rig) {
			r.eventually("the POST", func() bool { return r.Inflight() == 1 })
			r.drain(0)
		}},
		"a lost link": {app: dispatcher(func(context.Context, *message.Message) message.Outcome {
			posting <- struct{}{}
			<-cut
			return answer(200)
		}), outcome: "ack", reason: "success", then: func(r *rig) {
			<-posting
			r.proxy.Cut()
			close(cut)
			r.eventually("settled from memory", func() bool {
				return slices.ContainsFunc(r.settledLines("ack", "success"), func(line map[string]any) bool { return line["remembered"] == true })
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, c.app, c.s)
			r.send(amqp.Publishing{
				MessageId: "m", CorrelationId: "c", Type: "OrderCreated", Body: make([]byte, 200<<10), DeliveryMode: amqp.Persistent,
				Headers: amqp.Table{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
			})
			if c.then != nil {
				c.then(r)
			}
			r.eventually("its line", func() bool { return len(r.settledLines(c.outcome, c.reason)) > 0 })
			for field, want := range map[string]any{
				"message_id": "m", "correlation_id": "c", "type": "OrderCreated", "routing_key": r.plan.Queue,
				"trace_id": "0af7651916cd43dd8448eb211c80319c",
			} {
				all := slices.Concat(r.settledLines(c.outcome, c.reason), r.settledLines("release", "session_lost"))
				for _, line := range all {
					_, unknown := line["unknown_disposition"]
					if line[field] != want || line["retry_count"] == nil || line["duration_ms"] == nil ||
						unknown != (name == "an unknown word") || unknown != (line["detail"] == "because") {
						t.Errorf("%s is not %q in %v", field, want, line)
					}
				}
			}
		})
	}
}

// TestDeliveryTagsOutOfOrder: the window would grow with the distance between two tags, and settle what it does not
// hold.
func TestDeliveryTagsOutOfOrder(t *testing.T) {
	t.Parallel()
	for _, tags := range [][]uint64{{0}, {2}, {1, 1}, {1, 3}, {1, 2, 1}, {1 << 63}, {1, 1 << 63}} {
		c := New(benchOptions(t, 1))
		t.Cleanup(func() { c.Drain(context.Background()) })
		r, killed, q := benchSession(t, c), 0, amqpwire.NewDeliveries(0)
		r.kill = func() { killed++ }
		for _, tag := range tags {
			q.Add(benchDelivery(tag, nil, time.Now()))
		}
		if ended := r.fetch(q); !ended || killed != 1 || len(r.pump.pending) != 0 {
			t.Errorf("%v: ended %v, killed %d times, %d pending", tags, ended, killed, len(r.pump.pending))
		}
	}
}

// TestEveryVerdictIsCounted: the settler counts by the pairs of possibleReasons, so one that a verdict or a settlement can
// have and the list has not would end the process.
func TestEveryVerdictIsCounted(t *testing.T) {
	t.Parallel()
	plan := benchOptions(t, 1).Plan
	discarding := *plan
	discarding.Park = topology.Route{}
	statuses := make([]int, 1000)
	for status := range statuses {
		statuses[status] = status
	}
	var outcomes []message.Outcome
	for _, status := range statuses {
		for d := message.DispositionNone; d <= message.DispositionDiscard; d++ {
			outcomes = append(outcomes, message.Outcome{Status: status, Disposition: d})
		}
	}
	for f := message.FailureNone + 1; f <= message.FailureNoRoute; f++ {
		outcomes = append(outcomes, message.Outcome{Failure: f})
	}
	seen := map[message.Action]bool{}
	for _, policy := range []retry.Policy{{}, {ParkOn: statuses}, {CountRefused: true, AckUnrouted: true}} {
		for _, p := range []*topology.Plan{plan, &discarding} {
			for _, o := range outcomes {
				for _, m := range []message.Message{
					{Queue: p.Queue, MaxRetries: 3}, {Queue: p.Queue, MaxRetries: 3, RetryCount: 3}, {Queue: p.Queue},
				} {
					v := p.Settlement(&m, policy.Decide(&m, o)).Verdict
					seen[v.Action] = true
					if !slices.Contains(possibleReasons[v.Action], v.Reason) {
						t.Fatalf("%+v: %v with the reason %v is not in possibleReasons", o, v.Action, v.Reason)
					}
				}
			}
		}
	}
	if len(seen) != message.Actions {
		t.Errorf("only the actions %v were met", seen)
	}
}
