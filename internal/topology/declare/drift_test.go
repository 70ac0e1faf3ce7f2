package declare

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestEnsureFindsDrift declares one object differently at a time. Whatever it is, it is named with its value and with
// what that comes to, and nothing of it is touched.
func TestEnsureFindsDrift(t *testing.T) {
	t.Parallel()
	p := build(t, topology.Options{Service: "wms-cincout"})
	quorum := build(t, topology.Options{Service: "wms-cincout", QueueType: "quorum"})
	const own, wait, dlq = "wms.queue.wms-cincout", "wms.retry-queue.wms-cincout", "wms.dlq.wms-cincout"
	waits := func(more amqp.Table) amqp.Table {
		args := amqp.Table{topology.ArgDLX: "", topology.ArgDLKey: own}
		maps.Copy(args, more)
		return args
	}
	url := brokertest.URL(t)
	for _, c := range []struct {
		name         string
		plan         *topology.Plan
		object, kind string // the kind of an exchange
		args         amqp.Table
		wanted       string
		found        string
	}{
		{"no ttl", p, wait, "", waits(nil), "x-message-ttl 5000", "none"},
		{"more arguments", p, wait, "", waits(amqp.Table{topology.ArgTTL: int64(5000), "x-max-length": int32(5)}), "x-max-length none", "5"},
		{"classic, quorum wanted", quorum, dlq, "", nil, "x-queue-type quorum", "classic"},
		{"quorum, classic wanted", p, dlq, "", amqp.Table{"x-queue-type": "quorum"}, "x-queue-type classic", "quorum"},
		{"exchange type", p, "wms.main-exchange", "topic", nil, "type fanout", "topic"},
		{"alternate exchange", p, "wms.main-exchange", "fanout", amqp.Table{"alternate-exchange": "amq.fanout"}, "alternate-exchange none", "amq.fanout"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := channel(t, url)
			t.Cleanup(func() { remove(t, ch, c.plan) })
			declare := func() error {
				if c.kind != "" {
					return ch.ExchangeDeclare(c.object, c.kind, true, false, false, false, c.args)
				}
				_, err := ch.QueueDeclare(c.object, true, false, false, false, c.args)
				return err
			}
			must.Do(t, declare())
			for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
				f := ensure(t, url, c.plan, mode)
				f = slices.DeleteFunc(f, func(f Finding) bool { return f.Problem == ProblemMissing })
				if len(f) > 1 { // a classic queue lacks arguments of a quorum queue, too
					f = slices.DeleteFunc(f, func(f Finding) bool { return f.Judgement == topology.Harmless })
				}
				if len(f) != 1 || f[0].Problem != ProblemDrift || !strings.Contains(f[0].Object, `"`+c.object+`"`) || f[0].Reason == "" {
					t.Fatalf("%s: %v", mode, f)
				}
				if f[0].Wanted != c.wanted || f[0].Found != c.found {
					t.Errorf("%s: wanted %q, found %q", mode, f[0].Wanted, f[0].Found)
				}
			}
			if err := declare(); err != nil {
				t.Errorf("the object was changed: %v", err)
			}
		})
	}
}

// TestInspectingMakesNothing: a queue that goes away while it is inspected is not made anew, and every property is read.
func TestInspectingMakesNothing(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	ch := channel(t, url)
	for _, kind := range []string{topology.TypeClassic, topology.TypeQuorum} {
		args := amqp.Table{
			topology.ArgType: kind, topology.ArgTTL: int64(60000), topology.ArgDLX: "amq.direct", topology.ArgDLKey: "", topology.ArgOverflow: "reject-publish",
			"x-max-length": int64(7), "x-max-length-bytes": int64(70), "x-expires": int64(3600000), topology.ArgSingleConsumer: true,
		}
		if kind == topology.TypeQuorum {
			args[topology.ArgDeliveryLimit], args[topology.ArgStrategy], args["x-quorum-initial-group-size"] = int64(5), "at-least-once", int64(1)
		} else {
			args["x-max-priority"], args["x-queue-mode"] = int64(3), "lazy"
		}
		must.Get(ch.QueueDeclare(kind, true, false, false, false, args))(t)
		p := prober{s: session(t, url)}
		planned := amqp.Table{topology.PropertyDurable: true, topology.PropertyAutoDelete: false, topology.ArgType: topology.TypeQuorum}
		found, _ := p.inspectQueue(t.Context(), kind, planned)
		want := maps.Clone(args)
		want[topology.PropertyDurable], want[topology.PropertyAutoDelete] = true, false
		if !reflect.DeepEqual(found, want) {
			t.Errorf("%s:\ngot  %v\nwant %v", kind, found, want)
		}
		must.Get(ch.QueueDelete(kind, false, false, false))(t)
		for _, ask := range []amqp.Table{planned, want} {
			if found, refusal := p.inspectQueue(t.Context(), kind, ask); found != nil || refusal != nil || p.err != nil {
				t.Errorf("%s: %+v, %v", kind, found, p.err)
			}
		}
		if _, err := channel(t, url).QueueDeclarePassive(kind, true, false, false, false, nil); err == nil {
			t.Error("a queue that had gone was declared by an inspection")
		}
	}
}

// TestLongNamesAreCompared: the broker's answer ends before a value that is as planned.
func TestLongNamesAreCompared(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout", RetryExchange: strings.Repeat("x", 200)})
	args := maps.Clone(queue(p, p.Queue).Args)
	args["x-single-active-consumer"] = true
	must.Get(channel(t, url).QueueDeclare(p.Queue, true, false, false, false, args))(t)
	f := ensure(t, url, p, topology.ModeDeclare)
	if len(f) != 1 || f[0].Property != "x-single-active-consumer" || f[0].Judgement != topology.Harmless {
		t.Errorf("%v", f)
	}
}

// TestNamesTooLongToCompare: the broker's answer ends before the value that it has.
func TestNamesTooLongToCompare(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	name := strings.Repeat("q", 200)
	p := build(t, topology.Options{Service: "wms-cincout", Queue: name})
	must.Get(channel(t, url).QueueDeclare(name, true, false, false, false, amqp.Table{"x-max-length": int64(7)}))(t)
	f := Blocking(ensure(t, url, p, topology.ModeDeclare))
	if len(f) != 1 || f[0].Found != "unknown" || !strings.Contains(f[0].Fix, "SIDECAR_TOPOLOGY_MODE=none") {
		t.Errorf("%v", f)
	}
}

// TestVhostThatMakesQuorumQueues: a declaration without a type makes a quorum queue there. With the type auto all queues
// are quorum queues as the sidecar declares them; with classic they are classic, whatever the virtual host's default is.
func TestVhostThatMakesQuorumQueues(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		o      topology.Options
		quorum bool
	}{
		"auto":                    {topology.Options{Service: "wms-cincout"}, true},
		"classic":                 {topology.Options{Service: "wms-cincout", QueueType: "classic"}, false},
		"classic with priorities": {topology.Options{Service: "wms-cincout", QueueType: "classic", QueueArguments: amqp.Table{"x-max-priority": int64(5)}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			brokertest.DefaultQueueType(t, "quorum")
			url := brokertest.URL(t)
			p := build(t, tc.o)
			before := must.Get(Inspect(t.Context(), session(t, url), p, topology.ModeDeclare))(t)
			fits(t, url, p, topology.ModeDeclare)
			r := must.Get(Ensure(t.Context(), session(t, url), p, topology.ModeVerify))(t)
			if len(r.Findings) > 0 || r.Plan.Quorum != tc.quorum || before.Plan.Quorum != tc.quorum {
				t.Errorf("quorum: %v when inspected, %v when declared: %v", before.Plan.Quorum, r.Plan.Quorum, r.Findings)
			}
			for _, q := range r.Plan.Queues {
				kept := must.Get(Keeping(t.Context(), session(t, url), q.Name))(t)
				if kept.Quorum != tc.quorum {
					t.Errorf("%s: %+v", q.Name, kept)
				}
			}
			travels(t, url, r.Plan)
			if !Compare(t.Context(), session(t, url), r.Plan, topology.ModeDeclare) {
				t.Error("at once it does not fit")
			}
		})
	}
}

// TestUntypedQueuesOfAQuorumVhost: where no type was asked for and none is decided by the service's queue, the first
// check reports the queues that the virtual host has made.
func TestUntypedQueuesOfAQuorumVhost(t *testing.T) {
	t.Parallel()
	brokertest.DefaultQueueType(t, "quorum")
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	p.AutoType = false // as in a plan file
	r := must.Get(Ensure(t.Context(), session(t, url), p, topology.ModeDeclare))(t)
	var reported []string
	for _, f := range r.Findings {
		if f.Property == topology.ArgType && f.Found == topology.TypeQuorum {
			reported = append(reported, f.Object)
		}
	}
	if len(r.Blocking()) > 0 || len(reported) != len(p.Queues) {
		t.Errorf("reported %q of %d queues: %v", reported, len(p.Queues), r.Findings)
	}
}

// TestDeclaredWithAndWithoutAType: a classic queue is the same queue whether its declaration named the type or not.
func TestDeclaredWithAndWithoutAType(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	untyped, typed := build(t, topology.Options{Service: "wms-cincout"}), build(t, topology.Options{Service: "wms-cincout", QueueType: "classic"})
	for _, p := range []*topology.Plan{untyped, typed, untyped} {
		fits(t, url, p, topology.ModeDeclare)
	}
	remove(t, channel(t, url), typed)
	for _, p := range []*topology.Plan{typed, untyped, typed} {
		fits(t, url, p, topology.ModeDeclare)
	}
}

// TestTypeIsDecidedByWhatExists: beside a quorum service queue nothing is declared as a classic queue, not even by the
// first request of a process.
func TestTypeIsDecidedByWhatExists(t *testing.T) {
	t.Parallel()
	for _, o := range []topology.Options{
		{Service: "wms-cincout"}, {Preset: topology.PresetPerQueue, Service: "in", Bindings: []topology.Binding{{Exchange: "domain.events", Key: "k"}}},
		{Preset: topology.PresetDelayLadder, Service: "demo-in", Bindings: []topology.Binding{{Exchange: "demo.events", Key: "k"}}},
	} {
		p := build(t, o)
		own := topology.TypeQuorum
		if p.Quorum {
			own = topology.TypeClassic
		}
		t.Run(p.Preset+" beside "+own, func(t *testing.T) {
			t.Parallel()
			url := brokertest.URL(t)
			must.Get(channel(t, url).QueueDeclare(p.Queue, true, false, false, false, amqp.Table{topology.ArgType: own}))(t)
			if Compare(t.Context(), session(t, url), p, topology.ModeDeclare) {
				t.Error("the type is not seen")
			}
			r := must.Get(Ensure(t.Context(), session(t, url), p, topology.ModeDeclare))(t)
			if len(r.Blocking()) > 0 || !Compare(t.Context(), session(t, url), r.Plan, topology.ModeDeclare) {
				t.Fatalf("%v", r.Findings)
			}
			s := prober{s: session(t, url)}
			for _, q := range r.Plan.Queues {
				found, _ := s.inspectQueue(t.Context(), q.Name, amqp.Table{topology.PropertyDurable: true, topology.ArgType: topology.TypeClassic})
				if found[topology.ArgType] != own {
					t.Errorf("%s: %v", q.Name, found)
				}
			}
		})
	}
}
