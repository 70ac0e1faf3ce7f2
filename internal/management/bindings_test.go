package management

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

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
