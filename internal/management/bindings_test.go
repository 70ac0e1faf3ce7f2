package management

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

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
		{"direct", bound("a", nil), bound("a", nil), true},
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
		{"topic", bound("a.b", nil), bound("a.b", nil), true},
		{"topic", bound("a.*", nil), bound("a.b", nil), true},
		{"topic", bound("a.b", nil), bound("a.*", nil), false},
		{"topic", bound("#", nil), bound("a.*.#", nil), true},
		{"topic", bound("a.#", nil), bound("a", nil), true},
		{"topic", bound("a.#", nil), bound("a.#", nil), true},
		{"topic", bound("a.*", nil), bound("a.#", nil), false},
		{"topic", bound("a.*", nil), bound("a.b.c", nil), false},
		{"topic", bound("a.#.c", nil), bound("a.b.*.c", nil), true},
		{"topic", bound("#.a.#", nil), bound("b.a", nil), true},
		{"topic", bound("", nil), bound("", nil), true},
	} {
		if got := (Exchange{Type: tc.kind}).covers(tc.found, tc.wanted); got != tc.want {
			t.Errorf("%s: %+v covers %+v: %v", tc.kind, tc.found, tc.wanted, got)
		}
	}
	other := bound("a", nil)
	other.Queue = "other"
	if (Exchange{Type: "fanout"}).covers(other, bound("a", nil)) {
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
