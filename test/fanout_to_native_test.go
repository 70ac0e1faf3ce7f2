//go:build nightly

package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestFanoutToNativeRefuses: what the script refuses it leaves as it is.
func TestFanoutToNativeRefuses(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	b := dialBroker(t)
	declare := func(name string, args ...any) string {
		t.Helper()
		table := amqp.Table{"x-queue-type": "quorum"}
		for i := 0; i < len(args); i += 2 {
			table[args[i].(string)] = args[i+1]
		}
		must.Do(t, b.declare(name, table))
		return name
	}
	// fanout declares a service's queue as the sidecar does, and its exchange if it has a retry queue.
	fanout := func(name string, limit any) string {
		return declare(name, "x-dead-letter-exchange", name+".x", "x-dead-letter-routing-key", "retry",
			"x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish", "x-delivery-limit", limit)
	}
	retry := func(name string, ttl int64) string {
		t.Helper()
		must.Do(t, b.declareExchange(name+".x", "direct"))
		q := declare(fmt.Sprintf("%s.%d", name, ttl), "x-message-ttl", ttl, "x-dead-letter-exchange", "", "x-dead-letter-routing-key", name,
			"x-dead-letter-strategy", "at-least-once", "x-overflow", "reject-publish")
		b.bind(q, "retry", name+".x")
		return q
	}
	const unlimited, never = int64(1<<31 - 1), int64(24 * time.Hour / time.Millisecond)

	wantStep(t, 64, "fanout-to-native.sh [-p VHOST] STEP QUEUE")
	wantStep(t, 64, "MIN and MAX", "begin", "q", "5s")
	wantStep(t, 1, `no queue "none"`, "back", "none")
	must.Do(t, b.declare("classic", amqp.Table{"x-dead-letter-exchange": "x"}))
	wantStep(t, 1, "is a classic queue", "check", "classic")
	wantStep(t, 1, "declared for native", "begin", declare("native", "x-delayed-retry-type", "failed"))
	wantStep(t, 1, "no sidecar with SIDECAR_TOPOLOGY=fanout has declared it", "check", declare("plain"))
	wantStep(t, 1, "delivery limit 5", "check", fanout("limited", int64(5)))

	q := fanout("a.queue+1", unlimited)
	wantStep(t, 1, "give MIN", "begin", q)
	wantStep(t, 0, "nothing to do", "back", q)
	set := func(name, definition string) { brokertest.Ctl(t, "set_policy", name, `^a\.`, definition) }
	set("theirs", `{"delivery-limit":30}`)
	wantStep(t, 1, "sets delivery-limit", "begin", q, "1000")
	wantStep(t, 0, `,"delayed-retry-max":1000}`, "begin", fanout("b", unlimited), "1000")
	wantStep(t, 1, "first roll all sidecars to SIDECAR_TOPOLOGY=fanout", "back", "b")

	// Keys of the policy that applied before stay, also when the delays are set anew. The delays are those of the queues.
	set("theirs", `{"max-length":9}`)
	retry(q, 300)
	wantStep(t, 0, `{"max-length":9,"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":2000}`, "begin", q, "1000", "2000")
	keeps := retry(q, never)
	wantStep(t, 0, fmt.Sprintf(`{"max-length":9,"delayed-retry-type":"failed","delayed-retry-min":300,"delayed-retry-max":%d}`, never), "begin", q)
	if got := policyOf(t, q); got["max-length"] != 9.0 || got["delayed-retry-min"] != 300.0 {
		t.Errorf("%v applies", got)
	}

	strange := declare("strange")
	b.bind(strange, "k", q+".x")
	wantStep(t, 1, `leads to "strange"`, "finish", q)
	b.unbind(strange, "k", q+".x")
	b.publish("", keeps, message("waits"))
	eventually(t, "a message waits", func() bool { return b.ready(keeps) == 1 })
	eventually(t, "it keeps the retry queue", func() bool {
		code, said := step(t, "finish", q)
		return code == 1 && strings.Contains(said, "holds 1 messages")
	})
}

// TestFanoutToNativeFinishesLast: while a sidecar with fanout runs, or a message is under way to the retry exchange, finish
// deletes no retry queue.
func TestFanoutToNativeFinishesLast(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum")
	s := sc.run()
	wantStep(t, 0, "next: roll all", "begin", sc.queue())
	wantStep(t, 1, "has declared \""+sc.retryExchange()+"\" again", "finish", sc.queue())
	s.stop()
	if sc.ready(sc.retryQueue()) != 0 {
		t.Error("the retry queue is deleted")
	}

	sc.deleteExchange(sc.retryExchange())
	sc.send("late")
	ch := sc.channel()
	eventually(t, "the message", func() bool {
		d, ok, err := ch.Get(sc.queue(), false)
		return err == nil && ok && d.Reject(false) == nil
	})
	wantStep(t, 1, "1 messages are on their way", "finish", sc.queue())
	sc.run().stop()
	eventually(t, "the message has waited and is back", func() bool { return sc.ready(sc.queue()) == 1 })

	sc.deleteExchange(sc.retryExchange())
	wantStep(t, 0, "\""+sc.retryQueue()+"\" returns messages", "finish", sc.queue())
	if sc.ready(sc.retryQueue()) != 0 {
		t.Error("a queue is deleted that no retry exchange leads to")
	}
}

// policyOf is what policies say of a queue.
func policyOf(t testing.TB, queue string) map[any]any {
	t.Helper()
	all := map[any]any{}
	for _, row := range brokertest.Rows(t, "queues", "name", "effective_policy_definition") {
		pairs, _ := row["effective_policy_definition"].([]any)
		for _, p := range pairs {
			if pair := p.([]any); row["name"] == queue {
				all[pair[0]] = pair[1]
			}
		}
	}
	return all
}

// moving is a steady stream of messages through sidecars of both topologies.
type moving struct {
	sc     *scene
	all    []*sidecar
	sent   []string // the app fails the message i as often as fails(i) says
	finish func()   // sends no more
}

func fails(i int) int { return []int{0, 1, 0, 2, 0, 3, 0, 1 << 20}[i%8] }

// load sends 50 messages a second until finish. The app wants no retry count that is higher than the failures before.
func (m *moving) load() {
	m.sc.app.otherwise(func(d *delivery) answer {
		var i int
		_, _ = fmt.Sscanf(d.ID, "m%d", &i)
		if n := d.Number("Amqp-Retry-Count"); n >= d.Nth {
			m.sc.t.Errorf("%s has %d retries after %d failures", d.ID, n, d.Nth-1)
		}
		if d.Nth <= fails(i) {
			return status(500)
		}
		return status(200)
	})
	m.finish = steadily(m.sc.t, 200*time.Millisecond, func() {
		for range 10 {
			id := fmt.Sprintf("m%d", len(m.sent))
			m.sent = append(m.sent, id)
			m.sc.send(id)
		}
	})
}

// roll replaces the running sidecars by two of that topology, one after the other; each starts before an old one stops.
func (m *moving) roll(topology string) {
	m.sc.t.Helper()
	old := m.all[max(len(m.all)-2, 0):]
	for i := range 2 {
		m.all = append(m.all, m.sc.with("TOPOLOGY", topology).run())
		if i < len(old) {
			old[i].stop()
		}
	}
}

// attempts waits for so many requests more.
func (m *moving) attempts(n int) {
	m.sc.t.Helper()
	before := m.sc.app.total()
	eventually(m.sc.t, "more attempts", func() bool { return m.sc.app.total() >= before+n })
}

// check waits until every message has ended, which it must once.
func (m *moving) check() {
	t := m.sc.t
	t.Helper()
	m.finish()
	want := map[string][]string{}
	for i, id := range m.sent {
		want[id] = []string{"ack"}
		if fails(i) > 3 {
			want[id] = []string{"park"}
		}
	}
	ended := func() map[string][]string { return (&rolling{all: m.all}).outcomes() }
	brokertest.Eventually(t, 2*patience, "all messages are accepted or parked", func() bool { return len(ended()) == len(want) })
	for _, s := range m.all[len(m.all)-2:] {
		s.stop()
	}
	for id, got := range ended() {
		if !slices.Equal(got, want[id]) {
			t.Errorf("%s ended as %v, want %v", id, got, want[id])
		}
	}
	for _, d := range m.sc.take(m.sc.dlq(), max(m.sc.ready(m.sc.dlq()), 0)) {
		if asInt(d.Headers["x-final-retry-count"]) != 3 || len(m.sc.app.Seen(d.MessageId)) < 4 {
			t.Errorf("%s is parked with %v", d.MessageId, d.Headers)
		}
	}
	if left := m.sc.ready(m.sc.queue()); left != 0 {
		t.Errorf("%d messages are left in the queue", left)
	}
}

// TestFanoutToNativeAndBack moves a queue under load, two replicas at a time, while messages wait in the retry queue, and
// moves it back. No connection is cut, so each message ends once.
func TestFanoutToNativeAndBack(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	sc := newScene(t).with("QUEUE_TYPE", "quorum", "RETRY_DELAY", "1s", "MAX_RETRIES", "3")
	m := &moving{sc: sc}
	m.roll("fanout")
	m.load()
	m.attempts(100)
	wantStep(t, 0, "next: run begin", "check", sc.queue())
	wantStep(t, 0, `{"delayed-retry-type":"failed","delayed-retry-min":1000,"delayed-retry-max":1000}`, "begin", sc.queue())
	m.roll("native")
	brokertest.Eventually(t, 2*patience, "the retry exchange is deleted", func() bool {
		code, said := step(t, "finish", sc.queue())
		t.Log(said)
		return code == 0
	})
	if sc.ready(sc.retryQueue()) != -1 {
		t.Error("the retry queue is still there")
	}
	m.attempts(100)
	m.roll("fanout")
	wantStep(t, 0, "is removed", "back", sc.queue())
	m.attempts(100)
	m.check()
}
