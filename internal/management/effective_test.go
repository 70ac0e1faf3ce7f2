package management

import (
	"context"
	"fmt"
	"reflect"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestEffective(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		queue    Queue
		argument string
		want     any
	}{
		{Queue{Arguments: Table{"x-message-ttl": int64(5)}}, "x-message-ttl", int64(5)},
		{Queue{Settings: Table{"message-ttl": int64(5)}}, "x-message-ttl", int64(5)},
		{Queue{Settings: Table{"ha-mode": "all"}}, "x-ha-mode", nil},
		{both("x-max-length", int64(5), "max-length", int64(3), ""), "x-max-length", int64(3)},
		{both("x-max-length", int64(3), "max-length", int64(5), ""), "x-max-length", int64(3)},
		{both("x-expires", int64(5), "expires", int64(3), ""), "x-expires", int64(3)},
		{both("x-overflow", "drop-head", "overflow", "reject-publish", "classic"), "x-overflow", "drop-head"},
		{both("x-overflow", "drop-head", "overflow", "reject-publish", "quorum"), "x-overflow", "reject-publish"},
		{both("x-dead-letter-exchange", "own", "dead-letter-exchange", "other", "quorum"), "x-dead-letter-exchange", "own"},
		{both("x-dead-letter-strategy", "a", "dead-letter-strategy", "b", "quorum"), "x-dead-letter-strategy", "a"},
		{Queue{Type: "classic", Settings: Table{"delivery-limit": int64(3)}}, "x-delivery-limit", nil},
		{Queue{Type: "quorum", Settings: Table{"delivery-limit": int64(3)}}, "x-delivery-limit", int64(3)},
		{both("x-delivery-limit", int64(5), "delivery-limit", int64(3), "quorum"), "x-delivery-limit", int64(3)},
		{both("x-delivery-limit", int64(5), "delivery-limit", int64(-1), "quorum"), "x-delivery-limit", int64(5)},
		{both("x-delivery-limit", int64(-1), "delivery-limit", int64(5), "quorum"), "x-delivery-limit", int64(5)},
		{both("x-delayed-retry-type", "all", "delayed-retry-type", "failed", "quorum"), "x-delayed-retry-type", "failed"},
		{both("x-delayed-retry-min", int64(5), "delayed-retry-min", int64(3), "quorum"), "x-delayed-retry-min", int64(3)},
		{Queue{Type: "stream"}, "x-queue-type", "stream"},
		{Queue{AutoDelete: true}, "auto_delete", true},
		{Queue{Arguments: Table{"list": []any{int64(1), amqp.Table{"a": true}}}}, "list", `[1,{"a":true}]`},
	} {
		if got, _ := tc.queue.Effective(); got[tc.argument] != tc.want {
			t.Errorf("%+v: %s is %v, want %v", tc.queue, tc.argument, got[tc.argument], tc.want)
		}
	}
}

// both is a queue with an argument and a setting.
func both(argument string, value any, key string, setting any, queueType string) Queue {
	return Queue{Type: queueType, Arguments: Table{argument: value}, Settings: Table{key: setting}}
}

func TestPoliciesThatChangeAnArgument(t *testing.T) {
	t.Parallel()
	q := both("x-max-length", int64(5), "max-length", int64(3), "classic")
	for _, tc := range []struct{ policy, operator, want string }{
		{"a b", "", `policy "a b"`}, {"", "o", `operator policy "o"`}, {"a", "o", `policy "a" and operator policy "o"`},
	} {
		q.Policy, q.OperatorPolicy = tc.policy, tc.operator
		if _, by := q.Effective(); len(by) != 1 || by["x-max-length"] != tc.want {
			t.Errorf("got %q, want %q", by, tc.want)
		}
	}
	q.Settings["max-length"] = int64(9)
	if _, by := q.Effective(); len(by) > 0 {
		t.Errorf("%q changes nothing: the argument is smaller", by)
	}
}

// TestBrokerMergesLikeEffective compares what the broker does with a queue that has an argument and a policy with what
// Effective says of it.
func TestBrokerMergesLikeEffective(t *testing.T) {
	t.Parallel()
	const hour, soon = int64(3600000), int64(1)
	url := brokertest.URL(t)
	brokertest.Queue(t, url, "own", nil)
	one := func(args amqp.Table) amqp.Table { args["x-max-length"] = int64(1); return args }
	for i, tc := range []struct {
		kind     string
		args     amqp.Table
		settings string
		argument string
		want     any
		holds    func(t *testing.T, queue string) bool
	}{
		{"classic", amqp.Table{"x-message-ttl": hour}, `{"message-ttl": 1}`, "x-message-ttl", soon, expires},
		{"quorum", amqp.Table{"x-message-ttl": soon}, `{"message-ttl": 3600000}`, "x-message-ttl", soon, expires},
		{"classic", one(amqp.Table{"x-overflow": "reject-publish"}), `{"overflow": "drop-head"}`, "x-overflow", "reject-publish", rejects},
		{"quorum", one(amqp.Table{"x-overflow": "drop-head"}), `{"overflow": "reject-publish"}`, "x-overflow", "reject-publish", rejects},
		{"quorum", amqp.Table{"x-delivery-limit": int64(9)}, `{"delivery-limit": 0}`, "x-delivery-limit", int64(0), drops},
		{"quorum", deadLetters("own"), `{"dead-letter-routing-key": "other"}`, "x-dead-letter-routing-key", "own", arrives},
		{"classic", amqp.Table{}, `{"dead-letter-exchange": "", "dead-letter-routing-key": "own"}`, "x-dead-letter-exchange", "", arrives},
	} {
		queue := fmt.Sprint("q", i)
		brokertest.Ctl(t, "set_policy", queue, "^"+queue+"$", tc.settings)
		tc.args["x-queue-type"] = tc.kind
		brokertest.Queue(t, url, queue, tc.args)
		t.Run(fmt.Sprint(tc.kind, " ", tc.args, " ", tc.settings), func(t *testing.T) {
			p := &topology.Plan{Queue: queue, Queues: []topology.Queue{{Name: queue}}}
			var seen Queue
			brokertest.Eventually(t, time.Minute, "the policy is reported", func() bool {
				seen = read(t, p).Queues[queue]
				return len(seen.Settings) > 0
			})
			if got, _ := seen.Effective(); !reflect.DeepEqual(got[tc.argument], tc.want) {
				t.Errorf("%s is %v, want %v", tc.argument, got[tc.argument], tc.want)
			}
			brokertest.Eventually(t, time.Minute, "the broker does so", func() bool { return tc.holds(t, queue) })
		})
	}
}

func deadLetters(key string) amqp.Table {
	return amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": key}
}

// publish reports whether the queue has taken a message.
func publish(t *testing.T, queue string) bool {
	t.Helper()
	ch := brokertest.Channel(t, brokertest.URL(t))
	defer func() { _ = ch.Close() }()
	confirm := must.Get(ch.PublishWithDeferredConfirm("", queue, false, false, amqp.Publishing{Body: []byte("x")}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	return must.Get(confirm.WaitContext(ctx))(t)
}

// deliver publishes a message and takes one from the queue, which must be there.
func deliver(t *testing.T, queue string) amqp.Delivery {
	t.Helper()
	publish(t, queue)
	ch := brokertest.Channel(t, brokertest.URL(t))
	var d amqp.Delivery
	brokertest.Eventually(t, time.Minute, "a message is in the queue", func() (ok bool) {
		d, ok, _ = ch.Get(queue, false)
		return ok
	})
	return d
}

func expires(t *testing.T, queue string) bool {
	t.Helper()
	publish(t, queue)
	time.Sleep(50 * time.Millisecond)
	return brokertest.Ready(t, brokertest.URL(t), queue) == 0
}

func rejects(t *testing.T, queue string) bool { t.Helper(); return !publish(t, queue) }

func drops(t *testing.T, queue string) bool {
	t.Helper()
	must.Do(t, deliver(t, queue).Reject(true)) // from 4.3 on a nack does not count
	time.Sleep(50 * time.Millisecond)
	return brokertest.Ready(t, brokertest.URL(t), queue) == 0
}

func arrives(t *testing.T, queue string) bool {
	t.Helper()
	must.Do(t, deliver(t, queue).Reject(false))
	time.Sleep(50 * time.Millisecond)
	return brokertest.Ready(t, brokertest.URL(t), "own") > 0
}

func TestCovers(t *testing.T) {
	t.Parallel()
	bound := func(key string, args amqp.Table) topology.Binding {
		return topology.Binding{Exchange: "x", Queue: "q", Key: key, Args: args}
	}
	two := amqp.Table{"x-match": "all", "n": int64(2)}
	for _, tc := range []struct {
		kind          string
		found, wanted topology.Binding
		want          bool
	}{
		{"direct", bound("a", two), bound("a", nil), true},
		{"direct", bound("b", nil), bound("a", nil), false},
		{"direct", bound("#", nil), bound("a", nil), false},
		{"fanout", bound("b", two), bound("a", nil), true},
		{"headers", bound("b", two), bound("a", amqp.Table{"n": int64(2), "x-match": "all"}), true},
		{"headers", bound("b", two), bound("b", nil), false},
		{"headers", bound("", nil), bound("b", amqp.Table{}), true},
		{"headers", bound("b", two), bound("b", amqp.Table{"n": make(chan int)}), false},
		{"x-modulus-hash", bound("a", two), bound("a", two), true},
		{"x-modulus-hash", bound("a", two), bound("a", nil), false},
		{"x-modulus-hash", bound("a", two), bound("b", two), false},
		{"topic", bound("a.*", nil), bound("a.b", nil), true},
		{"topic", bound("a.b", nil), bound("a.*", nil), false},
	} {
		if got := covers(tc.kind, tc.found, tc.wanted); got != tc.want {
			t.Errorf("%s: %+v covers %+v: %v", tc.kind, tc.found, tc.wanted, got)
		}
	}
	other := bound("a", nil)
	other.Queue = "other"
	if covers("fanout", other, bound("a", nil)) {
		t.Error("a binding of another queue covers it")
	}
}

func TestInstead(t *testing.T) {
	t.Parallel()
	missing := topology.Binding{Exchange: "x", Queue: "q", Key: "a"}
	s := &Seen{Bindings: []topology.Binding{
		{Exchange: "x", Queue: "q", Key: "b"}, {Exchange: "y", Queue: "q", Key: "a"},
		{Exchange: "x", Queue: "q", Key: "", Args: amqp.Table{"n": int64(1)}},
	}}
	if got := s.Instead(missing); got != `key "b", key "" and arguments {"n":1}` {
		t.Errorf("got %s", got)
	}
	if got := (&Seen{}).Instead(missing); got != "nothing" {
		t.Errorf("got %s", got)
	}
}

// TestTopicsAsTheBrokerRoutes: a key gets to the queues whose patterns match it, and a pattern that covers another one
// gets every message that the other gets.
func TestTopicsAsTheBrokerRoutes(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	ch := brokertest.Channel(t, url)
	must.Do(t, ch.ExchangeDeclare("topics", "topic", false, false, false, false, nil))
	patterns := []string{"", "#", "*", "*.*", "#.#", "#.*", "a", "a.*", "a.#", "#.a", "*.#.a", "a.#.b", "#.a.#", "a..b", "*.b", "a*", ".", "a.*.#"}
	keys := []string{"", "a", "b", ".", "..", "a.", ".a", "a.b", "a..b", "a.b.a", "b.a", "a.x.y.b", "a*", "*", "#", "a.#", "A"}
	got := map[string]map[string]bool{}
	for i, p := range patterns {
		q := brokertest.Queue(t, url, fmt.Sprint("topic-", i), nil)
		must.Do(t, ch.QueueBind(q, p, "topics", false, nil))
		got[p] = map[string]bool{}
	}
	for _, k := range keys {
		brokertest.Publish(t, ch, "topics", k, amqp.Publishing{Body: []byte(k)})
	}
	for i, p := range patterns {
		for d, ok, _ := ch.Get(fmt.Sprint("topic-", i), true); ok; d, ok, _ = ch.Get(fmt.Sprint("topic-", i), true) {
			got[p][d.RoutingKey] = true
		}
	}
	for p, matched := range got {
		for _, k := range keys {
			if message.NewTopic(p).Match(k) != matched[k] {
				t.Errorf("the broker routes %q by %q: %v", k, p, matched[k])
			}
			for other := range got {
				if got[other][k] && !matched[k] && message.NewTopic(p).Covers(other) {
					t.Errorf("%q does not cover %q: the broker routes %q only by the second", p, other, k)
				}
			}
		}
	}
}
