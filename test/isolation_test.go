package test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// seven are the queues of one sidecar, each with a path of the app.
type seven struct {
	*scene
	s     *sidecar
	names []string

	mu    sync.Mutex
	modes map[string]answer        // by path; what is missing works
	hold  map[string]chan struct{} // by message: not answered before it is closed
}

// startSeven starts the sidecar and waits until it consumes all queues.
func startSeven(t *testing.T) *seven {
	t.Helper()
	q := &seven{scene: newScene(t), names: numbered("q", 7), modes: map[string]answer{}, hold: map[string]chan struct{}{}}
	for i, name := range q.names {
		q.names[i] = strings.ReplaceAll(name, "-", "")
		q.with("SUB_"+strings.ToUpper(q.names[i])+"_APP_URL", q.app.url()+q.names[i])
	}
	q.with("SUBSCRIPTIONS", strings.Join(q.names, ","), "MAX_RETRIES", "3", "APP_TIMEOUT", "2m") // no timeout ends what is held
	q.app.otherwise(func(d *delivery) answer {
		q.mu.Lock()
		defer q.mu.Unlock()
		if gate := q.hold[d.id]; gate != nil {
			return answer{status: http.StatusOK, gate: gate}
		}
		if a, misbehaves := q.modes[d.uri]; misbehaves {
			return a
		}
		return status(http.StatusOK)
	})
	q.s = q.run()
	return q
}

// of is the queue of the broker that belongs to a subscription; kind is queue, retry-queue or dlq.
func (q *seven) of(kind, name string) string {
	return fmt.Sprintf("%s.%s.%s.%s", q.prefix, kind, q.service, name)
}

// mode makes a path of the app answer like that; nil lets it work again.
func (q *seven) mode(name string, a *answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if delete(q.modes, "/"+name); a != nil {
		q.modes["/"+name] = *a
	}
}

// put publishes n messages to the queue of a subscription and returns their ids.
func (q *seven) put(name, label string, n int) []string {
	q.t.Helper()
	ids := numbered(label+"-"+name, n)
	q.publish("", q.of("queue", name), messages(ids...)...)
	return ids
}

// trouble is what happens to one queue; it returns the end of it.
type trouble struct {
	name string
	make func(q *seven, victim string) (end func())
}

var troubles = []trouble{
	{"deleted", func(q *seven, victim string) func() {
		q.deleteQueue(q.of("queue", victim))
		return func() {}
	}},
	{"declared again", func(q *seven, victim string) func() {
		q.deleteQueue(q.of("queue", victim))
		must.Do(q.t, q.declare(q.of("queue", victim), amqp.Table{
			"x-dead-letter-exchange": q.prefix + ".retry-exchange." + q.service + "." + victim, "x-dead-letter-routing-key": "retry",
		}))
		return func() {}
	}},
	{"purged", func(q *seven, victim string) func() {
		never := make(chan struct{})
		q.mode(victim, &answer{status: http.StatusOK, gate: never})
		q.put(victim, "purged", 200)
		ch := q.channel()
		must.Get(ch.QueuePurge(q.of("queue", victim), false))(q.t)
		must.Do(q.t, ch.Close())
		return func() { q.mode(victim, nil); close(never) }
	}},
	{"its channel closed", func(q *seven, victim string) func() {
		closed := brokertest.Eval(q.t, fmt.Sprintf(`length([P || C <- rabbit_amqqueue:consumers_all(<<%q>>),
			{queue_name, {resource, _, _, <<%q>>}} <- C, {channel_pid, P} <- C,
			ok =:= gen_server:cast(P, {method, {'basic.ack', 123456789, false}, none, noflow}),
			begin R = monitor(process, P), receive {'DOWN', R, process, P, _} -> true after 60000 -> false end end])`,
			brokertest.VhostName(q.t), q.of("queue", victim)))
		if closed != "1" {
			q.t.Errorf("%s channels were closed", closed)
		}
		return func() {}
	}},
	{"its path failing", func(q *seven, victim string) func() {
		q.mode(victim, &answer{status: http.StatusInternalServerError})
		ids := q.put(victim, "fails", 30)
		q.app.await(ids[0], 2)
		return func() { q.mode(victim, nil) }
	}},
	{"its path hanging", func(q *seven, victim string) func() {
		never := make(chan struct{})
		q.mode(victim, &answer{status: http.StatusOK, gate: never})
		ids := q.put(victim, "hangs", 30)
		q.app.await(ids[9], 1) // every worker has one
		return func() { q.mode(victim, nil); close(never) }
	}},
}

// TestSevenQueues: one queue of a sidecar is deleted, declared again, purged, its channel is closed, its path of the app
// fails and hangs. Meanwhile a message of every other queue is under way, and others arrive: each is handled once and
// none is parked, all on the connection that was made first. The queue itself goes on afterwards.
func TestSevenQueues(t *testing.T) {
	t.Parallel()
	q := startSeven(t)
	handled := map[string][]string{} // by subscription
	for i, trouble := range troubles {
		victim, label := q.names[i], fmt.Sprint("trouble", i)
		var under []string
		gate := make(chan struct{})
		for _, name := range q.names {
			if name == victim {
				continue
			}
			id := numbered("held-"+label+"-"+name, 1)[0]
			q.mu.Lock()
			q.hold[id] = gate
			q.mu.Unlock()
			under, handled[name] = append(under, id), append(handled[name], q.put(name, "held-"+label, 1)...)
		}
		q.app.awaitAll(under...)
		end := trouble.make(q, victim)
		for _, name := range q.names {
			if name != victim {
				ids := q.put(name, label, 20)
				q.app.awaitAll(ids...)
				handled[name] = append(handled[name], ids...)
			}
		}
		end()
		close(gate)
		q.goesOn(trouble.name, victim)
		for name, ids := range handled {
			for _, id := range ids {
				if n := len(q.app.Seen(id)); n != 1 {
					t.Errorf("%s %s: message %s of %s was POSTed %d times", victim, trouble.name, id, name, n)
				}
			}
		}
	}
	for _, name := range q.names[len(troubles):] {
		eventually(t, "every message of the last queue acked", func() bool {
			return q.s.metric("sidecar_messages_settled_total", `queue="`+q.of("queue", name)+`"`, `outcome="ack"`) == float64(len(handled[name]))
		})
	}
	for i, name := range q.names {
		if n := q.ready(q.of("dlq", name)); n > 0 && (i >= len(troubles) || troubles[i].name != "its path failing") {
			t.Errorf("%d messages of %s were parked", n, name)
		}
	}
	if n := len(q.s.log.find(func(e entry) bool {
		return e.is("broker connected") && strings.Contains(e.text("connection"), "consume")
	})); n != 1 {
		t.Errorf("%d connections were made to consume", n)
	}
	q.s.stop()
}

// goesOn waits until a message of the queue is received that was published after the trouble: until then it may have no
// queue to be published to.
func (q *seven) goesOn(trouble, victim string) {
	q.t.Helper()
	id := numbered("after-"+strings.ReplaceAll(trouble, " ", "-"), 1)[0]
	eventually(q.t, victim+" goes on after it was "+trouble, func() bool {
		if q.consumers(q.of("queue", victim)) < 1 {
			return false
		}
		if !slices.ContainsFunc(q.app.all(), func(d *delivery) bool { return d.id == id }) && q.ready(q.of("queue", victim)) <= 0 {
			q.publish("", q.of("queue", victim), message(id))
		}
		return len(q.app.Seen(id)) > 0
	})
}
