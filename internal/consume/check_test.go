package consume

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestPublishedRetryProvesItsWay: where bindings are not declared, a retry is a publish, which returns when the binding
// is missing. The message is not lost, and it is not counted twice.
func TestPublishedRetryProvesItsWay(t *testing.T) {
	t.Parallel()
	var s seen
	r := start(t, s.answers(500, 500, 500), settings{concurrency: 1, prefetch: 1, change: func(p *topology.Plan) { *p = *p.WithoutReject() }})
	r.eventually("active", func() bool { return r.Active() })
	wait := r.plan.Waits[0]
	must.Do(t, r.ch.QueueUnbind(wait.Queue, wait.Key, wait.Exchange, nil))
	r.publish("a")
	r.eventually("the retry returns to us", func() bool { return r.unroutable.Load() > 0 })
	must.Do(t, r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil))
	r.acked(1)
	r.counted(3, message.Retry, message.ReasonServerError)
	if s.Of("a") != 4 {
		t.Errorf("%d attempts, want 4: nothing lost, nothing counted twice", s.Of("a"))
	}
}

// TestRejectWaitsForACheck of the topology, and then follows what it has found: here the retry queue is gone, so the
// message leaves by a publish, which is returned, instead of being lost. A drain ends the wait, and so does a check that
// does not end, as when its connection waits for the memory that the failed message holds.
func TestRejectWaitsForACheck(t *testing.T) {
	t.Parallel()
	for _, check := range []string{"ends", "is drained", "never ends"} {
		t.Run(check, func(t *testing.T) {
			t.Parallel()
			var s seen
			var asked atomic.Int64
			var current atomic.Pointer[topology.Plan]
			checked := make(chan struct{})
			r := start(t, s.answers(500, 200), settings{current: current.Load, requestCheck: func() <-chan struct{} {
				select {
				case <-checked:
					return nil
				default:
					asked.Add(1)
					return checked
				}
			}, change: func(p *topology.Plan) { current.Store(p) }})
			r.eventually("active", func() bool { return r.Active() })
			wait := r.plan.Waits[0]
			must.Get(r.ch.QueueDelete(wait.Queue, false, false, false))(t)
			r.publish("a")
			r.eventually("a failed message that waits for a check", func() bool { return asked.Load() >= 1 && r.Inflight() == 0 })
			switch check {
			case "is drained":
				if d := r.drain(time.Millisecond); d.Interrupted != 1 {
					t.Errorf("drained %+v", d)
				}
				r.holds(r.plan.Queue, 1)
				return
			case "ends":
				current.Store(r.plan.WithoutReject())
				close(checked)
			}
			r.eventually("the publish is returned", func() bool { return r.unroutable.Load() > 0 })
			for _, q := range r.plan.Queues {
				must.Get(r.ch.QueueDeclare(q.Name, true, false, false, false, q.Args))(t)
			}
			must.Do(t, r.ch.QueueBind(wait.Queue, wait.Key, wait.Exchange, false, nil))
			r.acked(1)
		})
	}
}

// TestRejectWaitsForOneCheck: each check takes longer than its result counts, so after each one another is needed. The
// message is rejected after the first check all the same.
func TestRejectWaitsForOneCheck(t *testing.T) {
	t.Parallel()
	var s seen
	var asked atomic.Int64
	r := start(t, s.answers(500, 200), settings{requestCheck: func() <-chan struct{} {
		asked.Add(1)
		checked := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(checked) })
		return checked
	}})
	r.publish("a")
	r.acked(1)
	if asked.Load() != 1 || s.Of("a") != 2 {
		t.Errorf("%d checks for one reject, %d attempts", asked.Load(), s.Of("a"))
	}
}

// asking is a client that waits for verdicts: its address, and what comes there.
func (r *rig) asking() (address string, replies <-chan amqp.Delivery) {
	r.t.Helper()
	const own = "amq.rabbitmq.reply-to"
	ch := must.Get(brokertest.Conn(r.t, r.url).Channel())(r.t)
	replies = must.Get(ch.Consume(own, "", true, false, false, false, nil))(r.t)
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	must.Do(r.t, ch.PublishWithContext(r.t.Context(), "", brokertest.Name(r.t, "absent"), true, false, amqp.Publishing{ReplyTo: own}))
	return (<-returns).ReplyTo, replies
}

// redriven puts a message into the service's queue as a redrive with a canary does.
func (r *rig) redriven(id, reply string, more amqp.Table) {
	r.t.Helper()
	r.eventuallyDeclared()
	h := amqp.Table{message.HeaderReply: reply}
	maps.Copy(h, more)
	brokertest.Publish(r.t, r.ch, "", r.plan.Queue, amqp.Publishing{MessageId: id, Headers: h})
}

// TestVerdictIsPublished: the process that redrove a message and asked gets its outcome, once it is settled and not
// before; a message that went back to its queue has no verdict yet.
func TestVerdictIsPublished(t *testing.T) {
	t.Parallel()
	early := true
	r := start(t, dispatcher(func(_ context.Context, m *message.Message) message.Outcome {
		switch m.MessageID {
		case "early":
			if early {
				early = false
				return answer(425)
			}
		case "bad":
			return answer(503)
		}
		return answer(200)
	}), settings{concurrency: 1, prefetch: 1})
	address, replies := r.asking()
	next := func() (token string, v message.VerdictReply) {
		t.Helper()
		select {
		case d := <-replies:
			if err := json.Unmarshal(d.Body, &v); err != nil || d.ContentType != "application/json" {
				t.Errorf("%s %q: %v", d.ContentType, d.Body, err)
			}
			return d.CorrelationId, v
		case <-time.After(soon):
			t.Fatal("no verdict")
			return "", v
		}
	}
	ask := func(id string, count int32) {
		r.redriven(id, message.ReplyTo(address, "t-"+id), amqp.Table{message.HeaderFinalRetryCount: count})
	}
	parked := message.VerdictReply{MessageID: "bad", Outcome: "park", Reason: "max_retries", Status: 503}
	for _, c := range []struct {
		id    string
		count int32
		want  message.VerdictReply
	}{
		{"good", 0, message.VerdictReply{MessageID: "good", Outcome: "ack", Reason: "success", Status: 200}},
		{"early", 0, message.VerdictReply{MessageID: "early", Outcome: "ack", Reason: "success", Status: 200}},
		{"bad", 10, parked},
	} {
		ask(c.id, c.count)
		if token, v := next(); token != "t-"+c.id || v != c.want {
			t.Errorf("%s: %+v, want %+v", token, v, c.want)
		}
	}
	ask("bad", 9) // the question goes along with the retry
	retried, again := message.VerdictReply{MessageID: "bad", Outcome: "retry", Reason: "server_error", Status: 503}, map[message.VerdictReply]int{}
	for range 2 { // in any order: nothing waits for a reply
		_, v := next()
		again[v]++
	}
	if again[retried] != 1 || again[parked] != 1 {
		t.Errorf("%+v", again)
	}
	for range 2 {
		d := r.parked()
		if _, there := d.Headers[message.HeaderReply]; there {
			t.Error("a parked message still asks")
		}
	}
}

// TestRepliesThatReachNoCanary: an address that is none is never written to, and one that has gone costs nothing.
func TestRepliesThatReachNoCanary(t *testing.T) {
	t.Parallel()
	r := start(t, always(200), settings{})
	victim := brokertest.Queue(t, r.url, brokertest.Name(t, "victim"), nil)
	r.redriven("forged", message.ReplyTo(victim, "1"), nil)
	r.redriven("gone", message.ReplyTo("amq.rabbitmq.reply-to.g1h2AA5yZXBseUA4MTgxMjM1NgAAAsIAAAAAawH6wA==.K0UVmi1sP3hINwdaDCDSLg==", "1"), nil)
	r.redriven("good", "", nil)
	r.acked(3)
	r.eventually("the reply that failed", func() bool { return strings.Contains(r.log.String(), "canary reply failed") })
	r.drain(soon) // replies are over then
	if n := brokertest.Ready(t, r.url, victim); n != 0 {
		t.Errorf("%d messages in a queue that a header named", n)
	}
}
