package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// foreignQueues are the arguments of a queue that was made by hand, and of what Dapr's component for RabbitMQ makes of
// enableDeadLetter. The judgement of every argument is a row of topologytest TestShapes.
var foreignQueues = map[string]amqp.Table{
	"by hand": {"x-max-priority": int32(5), "x-dead-letter-exchange": "dead.by.hand"},
	"dapr":    {"x-queue-type": "classic", "x-dead-letter-exchange": "dlx-billing-orders"},
}

// classic are the arguments that Dapr gives to a queue, of which deletedWhenUnused makes an auto-delete one.
var classic = amqp.Table{"x-queue-type": "classic"}

// migration is a queue of another owner's, with an exchange of that name, and the two programs of examples/migration.
type migration struct {
	*scene
	queue, appAddr string
	before, after  string // programs
	handled        []*output
}

func newMigration(t *testing.T, args amqp.Table, autoDelete bool) *migration {
	t.Helper()
	m := &migration{scene: newScene(t), appAddr: freeAddr(t)}
	m.queue = m.prefix + "-orders"
	m.before, m.after = exampleProgram(t, "migration/before"), exampleProgram(t, "migration/after")
	m.with("APP_URL", "http://"+m.appAddr+"/orders", "PARK_ON_STATUS", "422", "BINDINGS", m.queue+":")
	ch := m.channel()
	defer func() { _ = ch.Close() }()
	must.Do(t, ch.ExchangeDeclare(m.queue, "fanout", true, autoDelete, false, false, nil))
	must.Get(ch.QueueDeclare(m.queue, true, autoDelete, false, false, args))(t)
	m.bind(m.queue, "", m.queue)
	return m
}

var builtExamples sync.Map // of func() (string, error) by name

// exampleProgram builds a program of examples, once.
func exampleProgram(t *testing.T, name string) string {
	t.Helper()
	once, _ := builtExamples.LoadOrStore(name, sync.OnceValues(func() (string, error) {
		out := filepath.Join(workDir, strings.ReplaceAll(name, "/", "-"))
		text, err := exec.Command("go", "build", "-o", out, "../examples/"+name).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("build %s: %w\n%s", name, err, text)
		}
		return out, err
	}))
	out := must.Get(once.(func() (string, error))())(t)
	return out
}

// start runs a program until it says that word.
func (m *migration) start(program, word string, args ...string) *sidecar {
	m.t.Helper()
	p := launchBinary(m.t, program, nil, args...)
	m.handled = append(m.handled, p.log)
	eventually(m.t, program+" says "+word, func() bool { return word == "" || p.log.mentions(word) })
	return p
}

func (m *migration) startBefore() *sidecar {
	m.t.Helper()
	return m.start(m.before, "consuming", "-url", brokertest.URL(m.t), "-queue", m.queue)
}

// order publishes orders 0 … n-1 of that name and returns the name's ids.
func (m *migration) order(name string, n, amount int) (ids []string) {
	m.t.Helper()
	for i := range n {
		id := fmt.Sprintf("%s-%d", name, i)
		ids = append(ids, id)
		m.publish(m.queue, "", amqp.Publishing{
			MessageId: id, ContentType: "application/json", DeliveryMode: amqp.Persistent,
			Body: fmt.Appendf(nil, `{"id":"%s","amount":%d}`, id, amount),
		})
	}
	return ids
}

// unacked counts the messages of the queue that a consumer holds.
func (m *migration) unacked() (n int) {
	m.t.Helper()
	for _, row := range brokertest.Rows(m.t, "queues", "name", "messages_unacknowledged") {
		if held, ok := row["messages_unacknowledged"].(float64); ok && row["name"] == m.queue {
			n += int(held)
		}
	}
	return n
}

// billed counts how often each order was billed, by whomever.
func (m *migration) billed() map[string]int {
	counts := map[string]int{}
	for _, o := range m.handled {
		for line := range strings.Lines(o.String()) {
			if _, id, ok := strings.Cut(strings.TrimSpace(line), "billed "); ok {
				counts[id]++
			}
		}
	}
	return counts
}

func (m *migration) wantBilled(times int, ids ...string) {
	m.t.Helper()
	eventually(m.t, "all orders billed", func() bool {
		counts := m.billed()
		return !slices.ContainsFunc(ids, func(id string) bool { return counts[id] < times })
	})
	for _, id := range ids {
		if n := m.billed()[id]; n != times {
			m.t.Errorf("%s was billed %d times, want %d", id, n, times)
		}
	}
}

// TestTakeOverAQueue: the sidecar consumes another owner's queue as it is, first beside its consumer and then instead
// of it, without a loss, a duplicate, or a change to the queue; and back again.
func TestTakeOverAQueue(t *testing.T) {
	t.Parallel()
	for name, args := range foreignQueues {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := newMigration(t, args, false)
			m.with("QUEUE", m.queue, "RETRY_DELAY", "500ms")
			if name == "by hand" {
				m.with("TOPOLOGY_MODE", "verify")
				m.importPlan()
			}
			if err := m.declare(m.queue, args); err != nil {
				t.Errorf("the import changed the queue: %v", err)
			}
			ids := m.order("early", 20, 1)
			consumer := m.startBefore()
			m.start(m.after, "", "-addr", m.appAddr)
			s := m.run()
			eventually(t, "two consumers", func() bool { return m.consumers(m.queue) == 2 })
			ids = append(ids, m.order("both", 30, 1)...)
			m.wantBilled(1, ids...)
			eventually(t, "the consumer's last ack", func() bool { return m.unacked() == 0 }) // it bills before it acks
			consumer.kill()
			ids = append(ids, m.order("late", 20, 1)...)
			m.wantBilled(1, ids...)

			// What the two statuses mean: 422 parks at once, 503 waits in the new retry queue and returns.
			m.order("invalid", 1, 0)
			if d := m.take(m.dlq(), 1)[0]; d.MessageId != "invalid-0" || d.Headers["x-final-reason"] != "park_status" {
				t.Errorf("parked %s with %v", d.MessageId, d.Headers)
			}
			m.order("away", 1, 1001)
			eventually(t, "a second attempt", func() bool { return len(s.log.outcomes("away-0")) >= 2 })
			if got := s.log.outcomes("away-0"); got[0] != "retry" || got[1] != "retry" {
				t.Errorf("outcomes %v", got)
			}

			// Roll back: the consumer finds everything, the one that waits included.
			s.stop()
			m.startBefore()
			m.wantBilled(1, m.order("back", 20, 1)...)
			if err := m.declare(m.queue, args); err != nil {
				t.Errorf("the queue is not what it was: %v", err)
			}
		})
	}
}

// importPlan makes what is missing, as an operator would.
func (m *migration) importPlan() {
	m.t.Helper()
	r := command(m.t, m.env, "plan", "--format", "definitions")
	if r.code != 0 {
		m.t.Fatalf("plan: exit %d: %s", r.code, r.all())
	}
	importDefinitions(m.t, r.stdout)
	for _, queue := range []string{m.retryQueue(), m.dlq()} {
		eventually(m.t, "the imported "+queue, func() bool { return m.ready(queue) >= 0 })
	}
}

// TestNewQueueBeside: a queue of the sidecar's own on the exchange of a Dapr topic, which may be one that its last
// binding takes with it. Between the new binding and the end of the old one messages are in both queues.
func TestNewQueueBeside(t *testing.T) {
	t.Parallel()
	m := newMigration(t, classic, true)
	m.with("QUEUE_TYPE", "quorum")
	consumer := m.startBefore()
	ids := m.order("before", 20, 1)
	m.importPlan()
	twice := m.order("between", 5, 1)
	m.unbind(m.queue, "", m.queue)
	ids = append(ids, m.order("after", 20, 1)...)
	m.wantBilled(1, append(ids[:20:20], twice...)...)
	eventually(t, "the old queue is empty", func() bool { return m.ready(m.queue) == 0 })
	consumer.kill()

	m.start(m.after, "", "-addr", m.appAddr)
	s := m.run()
	m.wantBilled(1, ids...)
	m.wantBilled(2, twice...)
	m.settledAll(s, 0)
}

// TestMigrationDoc: docs/migration.md shows the examples as they are.
func TestMigrationDoc(t *testing.T) {
	t.Parallel()
	checkShown(t, "../docs/migration.md", 4)
}

// environments are the blocks of a page that hold nothing but NAME=value.
func environments(doc string) (all []map[string]string) {
	for i, block := range strings.Split(doc, "```sh\n") {
		block, _, ok := strings.Cut(block, "```")
		env := map[string]string{}
		for line := range strings.Lines(block) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " #")
			k, v, assigns := strings.Cut(strings.TrimSpace(line), "=")
			if ok = ok && assigns && strings.HasPrefix(k, "SIDECAR_"); ok {
				env[k] = v
			}
		}
		if i > 0 && ok {
			all = append(all, env)
		}
	}
	return all
}
