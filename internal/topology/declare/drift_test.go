package declare

import (
	"context"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestEnsureFindsDrift declares one object differently at a time. Whatever it is, it is named with its value, and
// nothing of it is touched.
func TestEnsureFindsDrift(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	quorum := build(t, topology.Options{Service: "wms-cincout", QueueType: "quorum"})
	const own, wait, dlq = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
	queue := func(name string, durable bool, args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name, durable, false, false, false, args)
			return err
		}
	}
	exchange := func(name, kind string, durable bool, args amqp.Table) func(*amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(name, kind, durable, false, false, false, args)
		}
	}
	waitWith := func(key string, v any) amqp.Table {
		args := amqp.Table{topology.ArgTTL: int64(5000), topology.ArgDLX: "", topology.ArgDLKey: own}
		args[key] = v
		return args
	}
	url := brokertest.URL(t)
	for _, c := range []struct {
		name, object string
		plan         *topology.Plan
		declare      func(*amqp.Channel) error
		wanted       string
		found        string
	}{
		{"ttl", wait, p, queue(wait, true, waitWith("x-message-ttl", int32(6000))), "x-message-ttl 5000", "6000"},
		{"no ttl", wait, p, queue(wait, true, amqp.Table{topology.ArgDLX: "", topology.ArgDLKey: own}), "x-message-ttl 5000", "none"},
		{"more arguments", wait, p, queue(wait, true, waitWith("x-max-length", int32(5))), "x-max-length none", "5"},
		{"other dead-letter key", own, p, queue(own, true, amqp.Table{
			"x-dead-letter-exchange": "wms.retry-exchange.wms-cincout", "x-dead-letter-routing-key": "other",
		}), "x-dead-letter-routing-key retry", "other"},
		{"classic, quorum wanted", dlq, quorum, queue(dlq, true, nil), "x-queue-type quorum", "classic"},
		{"quorum with a limit", dlq, quorum, queue(dlq, true, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 20}), "x-delivery-limit 2147483647", "20"},
		{"quorum, classic wanted", dlq, p, queue(dlq, true, amqp.Table{"x-queue-type": "quorum"}), "x-queue-type classic", "quorum"},
		{"exchange type", "wms.main-exchange", p, exchange("wms.main-exchange", "topic", true, nil), "type fanout", "topic"},
		{"transient exchange", "wms.main-exchange", p, exchange("wms.main-exchange", "fanout", false, nil), "durable true", "false"},
		{"alternate exchange", "wms.main-exchange", p, exchange("wms.main-exchange", "fanout", true, amqp.Table{"alternate-exchange": "amq.fanout"}),
			"alternate-exchange none", "amq.fanout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := channel(t, url)
			t.Cleanup(func() { remove(t, ch, c.plan) })
			must.Do(t, c.declare(ch))
			for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
				f := ensure(t, url, c.plan, mode)
				f = slices.DeleteFunc(f, func(f Finding) bool { return f.Problem == ProblemMissing })
				if len(f) != 1 || f[0].Problem != ProblemDrift || !strings.Contains(f[0].Object, `"`+c.object+`"`) || f[0].Fix == "" {
					t.Fatalf("%s: %v", mode, f)
				}
				if f[0].Wanted != c.wanted || f[0].Found != c.found {
					t.Errorf("%s: wanted %q, found %q", mode, f[0].Wanted, f[0].Found)
				}
			}
			if err := c.declare(ch); err != nil {
				t.Errorf("the object was changed: %v", err)
			}
		})
	}
}

// TestEnsureFindsAllDrift: the broker names one difference, we name all that it compares before the queue's type. The
// queue that is checked so closely is not touched, and one that goes away meanwhile is not made anew.
func TestEnsureFindsAllDrift(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	ch := channel(t, url)
	for _, quorum := range []bool{false, true} {
		o, args := topology.Options{Service: "wms-cincout"}, amqp.Table{topology.ArgDLX: "amq.direct", "x-max-length": 7, "x-expires": 3600000}
		want := map[string]string{
			"x-dead-letter-exchange wms.retry-exchange.wms-cincout": "amq.direct", "x-dead-letter-routing-key retry": "none",
			"x-max-length none": "7", "x-expires none": "3600000",
		}
		if quorum {
			o.QueueType, args[topology.ArgType] = topology.TypeQuorum, topology.TypeQuorum
			want["x-overflow reject-publish"], want["x-dead-letter-strategy at-least-once"] = "none", "none"
		}
		p := build(t, o)
		must.Get(ch.QueueDeclare(p.Queue, true, false, false, false, args))(t)
		for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
			got := map[string]string{}
			for _, f := range ensure(t, url, p, mode) {
				if f.Problem == ProblemDrift {
					got[f.Wanted] = f.Found
				}
			}
			for wanted, found := range want {
				if got[wanted] != found {
					t.Errorf("%s, quorum %t: wanted %s, found %q: %v", mode, quorum, wanted, found, got)
				}
			}
		}
		if _, err := ch.QueueDeclare(p.Queue, true, false, false, false, args); err != nil {
			t.Errorf("the queue was changed: %v", err)
		}
		must.Get(ch.QueueDelete(p.Queue, false, false, false))(t)
		e := newEnsurer(session(t, url), p, topology.ModeDeclare)
		own := queueOf(queue(p, p.Queue))
		e.drift(context.Background(), &own, &amqp.Error{
			Code: amqp.PreconditionFailed, Reason: "inequivalent arg 'x-max-length' for queue 'q': received none but current is '7'",
		})
		must.Do(t, e.err)
		if _, err := channel(t, url).QueueDeclarePassive(p.Queue, true, false, false, false, nil); err == nil {
			t.Error("a queue that had gone was declared by a check")
		}
		remove(t, ch, p)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		property, found string
		want            any
		ok              bool
	}{
		{"x-message-ttl", "6000", int64(6000), true}, {"x-message-ttl", "none", nil, true}, {"x-overflow", "drop-head", "drop-head", true},
		{"x-max-length", "none", nil, false}, {"x-max-length", "many", int64(0), false}, {"x-max-length", unknown, nil, false},
		{"durable", "false", int64(0), false},
	} {
		args := amqp.Table{"x-message-ttl": int64(5000)}
		if c.property != "x-message-ttl" {
			delete(args, "x-message-ttl")
		}
		if ok := adopt(args, c.property, c.found); ok != c.ok || args[c.property] != c.want {
			t.Errorf("%s %s: %t, %v", c.property, c.found, ok, args)
		}
	}
}
