package management

import (
	"context"
	"reflect"
	"slices"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// options are those of the test's broker and virtual host.
func options(t testing.TB) Options {
	t.Helper()
	return Options{URL: brokertest.Management(t), User: "guest", Password: "guest", Vhost: brokertest.VhostName(t)}
}

func read(t testing.TB, p *topology.Plan) *Seen {
	t.Helper()
	return must.Get(Read(t.Context(), options(t), p))(t)
}

// awaitSettings reads until the broker reports the settings of the queue's policies. Up to 4.2 they are in the statistics
// of a queue, which come every five seconds, and later when the queue is idle.
func awaitSettings(t testing.TB, p *topology.Plan, want amqp.Table) *Seen {
	t.Helper()
	var s *Seen
	brokertest.Eventually(t, time.Minute, "the settings of the policies are reported", func() bool {
		s = read(t, p)
		return reflect.DeepEqual(s.Queues[p.Queue].Settings, Table(want))
	})
	return s
}

func TestRead(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	ch := brokertest.Channel(t, url)
	brokertest.Ctl(t, "set_policy", "own", "^a/b", `{"message-ttl": 5000, "max-length": 9}`)
	brokertest.Ctl(t, "set_operator_policy", "operators", "^a/b", `{"max-length": 8}`)
	// Whatever a name holds, it is one segment of a path.
	queue, exchange := `a/b.c+d%2F?e#f é"`, "?x=1&y"
	must.Do(t, ch.ExchangeDeclare(exchange, "headers", true, false, false, false, amqp.Table{"alternate-exchange": "amq.fanout"}))
	args := amqp.Table{"x-max-priority": int64(5), "x-max-length": int64(7), "x-unknown": "text"}
	brokertest.Queue(t, url, queue, args)
	bound := amqp.Table{"x-match": "all", "n": int64(3), "ok": true, "f": 1.5, "list": []any{int64(1)}}
	must.Do(t, ch.QueueBind(queue, "k", exchange, false, bound))

	p := &topology.Plan{
		Queue: queue, Queues: []topology.Queue{{Name: queue}, {Name: "missing"}},
		Exchanges: []topology.Exchange{{Name: exchange}, {Name: "none"}},
		Bindings: []topology.Binding{
			{Exchange: exchange, Queue: queue, Key: "other", Args: bound},
			{Exchange: exchange, Queue: queue, Key: "k", Args: amqp.Table{"x-match": "all"}},
			{Exchange: "none", Queue: queue, Key: "k"}, {Exchange: exchange, Queue: "missing", Key: "k"},
		},
	}
	s := awaitSettings(t, p, amqp.Table{"message-ttl": int64(5000), "max-length": int64(8)})
	got := s.Queues[queue]
	got.Settings = nil
	delete(got.Arguments, topology.ArgType) // from 4.0 on the broker adds it
	want := Queue{
		Type: topology.TypeClassic, Durable: true, Arguments: Table(args), Policy: "own", OperatorPolicy: "operators",
	}
	if len(s.Queues) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", s.Queues, want)
	}
	if len(s.Exchanges) != 1 || s.Exchanges[exchange] != "headers" {
		t.Errorf("exchanges %+v", s.Exchanges)
	}
	wantBinding := topology.Binding{Exchange: exchange, Queue: queue, Key: "k", Args: bound}
	if len(s.Bindings) != 1 || !reflect.DeepEqual(s.Bindings[0], wantBinding) {
		t.Errorf("bindings %+v", s.Bindings)
	}
	if missing := s.MissingBindings(p); len(missing) != 1 || missing[0].Key != "k" || missing[0].Exchange != exchange {
		t.Errorf("missing %+v", missing)
	}
	if s.Unread != 0 || s.Leftover != nil {
		t.Errorf("%d queues unread, leftovers %v", s.Unread, s.Leftover)
	}
}

func TestLeftovers(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	back := func(key string) amqp.Table {
		return amqp.Table{topology.ArgTTL: int64(3600000), topology.ArgDLX: "", topology.ArgDLKey: key}
	}
	brokertest.Queue(t, url, "own", nil)
	brokertest.Queue(t, url, "retry", back("own"))
	brokertest.Queue(t, url, "retry.30s", back("own"))
	brokertest.Queue(t, url, "of-another-service", back("other"))
	brokertest.Queue(t, url, "through-an-exchange", amqp.Table{topology.ArgDLX: "amq.direct", topology.ArgDLKey: "own"})
	brokertest.Send(t, url, "retry.30s", "one", "two")
	p := &topology.Plan{Queue: "own", Queues: []topology.Queue{{Name: "own"}, {Name: "retry"}}}
	var s *Seen
	brokertest.Eventually(t, time.Minute, "the messages are counted", func() bool {
		s = read(t, p)
		return slices.Equal(s.Leftover, []Leftover{{"retry.30s", "classic", 2}})
	})
	if s.Unread != 0 {
		t.Errorf("%d queues were not read", s.Unread)
	}
}

// More queues than fit on a page, and more than are read.
func TestManyQueues(t *testing.T) {
	t.Parallel()
	ch := brokertest.Channel(t, brokertest.URL(t))
	args := amqp.Table{topology.ArgDLX: "", topology.ArgDLKey: "own"}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		must.Get(ch.QueueDeclare(name, true, false, false, false, args))(t)
	}
	for _, tc := range []struct{ size, most, leftover, unread int }{
		{3, 9, 7, 0}, {7, 1, 7, 0}, {3, 2, 6, 1}, {2, 1, 2, 5},
	} {
		s := &Seen{}
		c := newClient(options(t))
		must.Do(t, s.readLeftovers(context.WithoutCancel(t.Context()), c, &topology.Plan{Queue: "own"}, tc.size, tc.most))
		if len(s.Leftover) != tc.leftover || s.Unread != tc.unread {
			t.Errorf("%d pages of %d: %d queues, %d unread", tc.most, tc.size, len(s.Leftover), s.Unread)
		}
	}
}
