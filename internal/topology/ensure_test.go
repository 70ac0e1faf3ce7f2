package topology

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
)

// variants are the plans that are declared on a broker. No two share a name.
func variants(t testing.TB) map[string]*Plan {
	tiers := []time.Duration{50 * time.Millisecond, 100 * time.Millisecond}
	plans := map[string]*Plan{}
	for _, queueType := range []string{"classic", "quorum"} {
		short := queueType[:1]
		for name, o := range map[string]Options{
			PresetTopicTiers:  {Service: short + "1-x", RetryDelays: tiers},
			PresetPerQueue:    {Service: short + "x", RetryDelay: tiers[0], Exchange: short + ".events", Bindings: []Binding{{Exchange: short + ".events", Key: "a"}}},
			PresetDelayLadder: {Service: short + "2-x", RetryDelays: tiers, Bindings: []Binding{{Exchange: short + "2.events", Key: "a"}}},
			PresetDeadLetter:  {Service: short + "3-x", Queue: short + "x", RetryDelay: tiers[0], Bindings: []Binding{{Exchange: short + "3", Key: "a"}}},
		} {
			o.Preset, o.QueueType = name, queueType
			plans[name+" "+queueType] = build(t, o)
		}
	}
	maps.Copy(plans, fanouts(t, tiers))
	return plans
}

func fanouts(t testing.TB, tiers []time.Duration) map[string]*Plan {
	return map[string]*Plan{
		"classic":       build(t, Options{Service: "a-x", RetryDelay: 50 * time.Millisecond}),
		"quorum":        build(t, Options{Service: "b-x", RetryDelay: 50 * time.Millisecond, QueueType: "quorum"}),
		"classic tiers": build(t, Options{Service: "c-x", RetryDelays: tiers}),
		"quorum tiers":  build(t, Options{Service: "d-x", RetryDelays: tiers, QueueType: "quorum"}),
		"every override": build(t, Options{
			Service: "wms-cincout", Prefix: "p", Exchange: "x", ExchangeType: "topic", Queue: "q", RetryExchange: "rx",
			RetryQueue: "rq", DLX: "dx", DLQ: "d", Bindings: []Binding{{Exchange: "x", Key: "a.#"}, {Exchange: "amq.direct", Key: "k"}},
			RetryDelay: 50 * time.Millisecond,
		}),
	}
}

func TestEnsure(t *testing.T) {
	url := brokertest.Vhost(t)
	for name, p := range variants(t) {
		t.Run(name, func(t *testing.T) {
			missing := ensure(t, url, p, ModeVerify)
			want := len(p.Exchanges) + len(p.Queues)
			if name == "every override" {
				want-- // amq.direct is always there
			}
			if len(missing) != want {
				t.Errorf("%d findings in an empty virtual host, want %d: %v", len(missing), want, missing)
			}
			for _, f := range missing {
				if f.Problem != ProblemMissing {
					t.Errorf("%s", f)
				}
			}
			if f := ensure(t, url, p, ModeNone); f != nil {
				t.Errorf("looked although told not to: %v", f)
			}
			fits(t, url, p, ModeDeclare)
			fits(t, url, p, ModeVerify)
			fits(t, url, p, ModeDeclare)
			for _, w := range p.Waits {
				publish(t, url, w.Exchange, w.Key, amqp.Publishing{})
			}
			publish(t, url, p.Park.Exchange, p.Park.Key, amqp.Publishing{})
			for range p.Waits {
				brokertest.Get(t, url, p.Queue, soon)
			}
			brokertest.Get(t, url, p.Park.Queue, soon)
		})
	}
}

// TestEnsureAtOnce: one round trip makes what one by one would have been made, and notices each object that does not
// fit, the first as well as the last.
func TestEnsureAtOnce(t *testing.T) {
	url := brokertest.Vhost(t)
	atOnce := func(p *Plan, mode Mode) bool { return EnsureAtOnce(context.Background(), session(t, url), p, mode) }
	for name, p := range variants(t) {
		t.Run(name, func(t *testing.T) {
			if atOnce(p, ModeVerify) {
				t.Error("fits in an empty virtual host")
			}
			if !atOnce(p, ModeNone) {
				t.Error("looked although told not to")
			}
			if !atOnce(p, ModeDeclare) {
				t.Error("cannot be declared")
			}
			fits(t, url, p, ModeVerify)
			for _, w := range p.Waits {
				publish(t, url, w.Exchange, w.Key, amqp.Publishing{})
				brokertest.Get(t, url, p.Queue, soon)
			}
			publish(t, url, p.Park.Exchange, p.Park.Key, amqp.Publishing{})
			brokertest.Get(t, url, p.Park.Queue, soon)
			for _, mode := range []Mode{ModeVerify, ModeDeclare} {
				if !atOnce(p, mode) {
					t.Errorf("%s: does not fit", mode)
				}
			}
			for i := range p.Queues {
				q := &p.Queues[i]
				ch := channel(t, url)
				if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
					t.Fatal(err)
				}
				if atOnce(p, ModeVerify) {
					t.Errorf("%s is gone and nobody noticed", q.Name)
				}
				if _, err := ch.QueueDeclare(q.Name, true, false, false, false, amqp.Table{"x-max-length": 1}); err != nil {
					t.Fatal(err)
				}
				if atOnce(p, ModeVerify) || atOnce(p, ModeDeclare) {
					t.Errorf("%s is different and nobody noticed", q.Name)
				}
				if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
					t.Fatal(err)
				}
				if !atOnce(p, ModeDeclare) {
					t.Errorf("%s is not declared again", q.Name)
				}
			}
		})
	}
}

// TestEnsureAtOnceTakesOneRoundTrip: opening the channel, and asking.
func TestEnsureAtOnceTakesOneRoundTrip(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout"})
	fits(t, url, p, ModeDeclare)
	for _, mode := range []Mode{ModeDeclare, ModeVerify} {
		s := &counted{Session: session(t, url)}
		if !EnsureAtOnce(context.Background(), s, p, mode) {
			t.Errorf("%s: does not fit", mode)
		}
		if n := s.asked.Load(); n != 1 {
			t.Errorf("%s: %d calls to the broker, want 1", mode, n)
		}
	}
}

// counted counts the calls to the broker other than those that open and close channels.
type counted struct {
	Session
	asked atomic.Int64
}

func (c *counted) Do(ctx context.Context, name string, fn func() error) error {
	if name != "close channel" {
		c.asked.Add(1)
	}
	return c.Session.Do(ctx, name, fn)
}

// TestOthersDeclareTheSame: services in other languages declare these queues with integers of 32 bits, and may say
// that a classic queue is classic.
func TestOthersDeclareTheSame(t *testing.T) {
	url := brokertest.Vhost(t)
	ch := channel(t, url)
	p := build(t, Options{Service: "wms-cincout"})
	for i := range p.Queues {
		args := amqp.Table{"x-queue-type": "classic"}
		for k, v := range p.Queues[i].Args {
			if n, ok := v.(int64); ok {
				v = int32(n) //nolint:gosec // 5000
			}
			args[k] = v
		}
		if _, err := ch.QueueDeclare(p.Queues[i].Name, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
	}
	fits(t, url, p, ModeDeclare)
}

func TestEnsureRepairs(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout", RetryDelay: time.Millisecond})
	fits(t, url, p, ModeDeclare)
	w, ch := p.Waits[0], channel(t, url)
	damage := map[string]func() error{
		"binding":  func() error { return ch.QueueUnbind(w.Queue, w.Key, w.Exchange, nil) },
		"queue":    func() error { _, err := ch.QueueDelete(w.Queue, false, false, false); return err },
		"exchange": func() error { return ch.ExchangeDelete(w.Exchange, false, false) },
	}
	for name, do := range damage {
		if err := do(); err != nil {
			t.Fatal(err)
		}
		fits(t, url, p, ModeDeclare)
		publish(t, url, w.Exchange, w.Key, amqp.Publishing{Body: []byte(name)})
		if d := brokertest.Get(t, url, p.Queue, soon); string(d.Body) != name {
			t.Errorf("got %q", d.Body)
		}
	}
}

// TestEnsureFindsDrift declares one object differently at a time. Whatever it is, it is named with its value, and
// nothing of it is touched.
func TestEnsureFindsDrift(t *testing.T) {
	p := build(t, Options{Service: "wms-cincout"})
	quorum := build(t, Options{Service: "wms-cincout", QueueType: "quorum"})
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
		args := waitArgs(5*time.Second, "", own, false)
		args[key] = v
		return args
	}
	url := brokertest.Vhost(t)
	for _, c := range []struct {
		name, object string
		plan         *Plan
		declare      func(*amqp.Channel) error
		wanted       string
		found        string
	}{
		{"ttl", wait, p, queue(wait, true, waitWith("x-message-ttl", int32(6000))), "x-message-ttl 5000", "6000"},
		{"no ttl", wait, p, queue(wait, true, amqp.Table{argDLX: "", argDLKey: own}), "x-message-ttl 5000", "none"},
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
			if err := c.declare(ch); err != nil {
				t.Fatal(err)
			}
			for _, mode := range []Mode{ModeDeclare, ModeVerify} {
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
// queue that is looked at so closely is not touched, and one that goes away meanwhile is not made anew.
func TestEnsureFindsAllDrift(t *testing.T) {
	url := brokertest.Vhost(t)
	ch := channel(t, url)
	for _, quorum := range []bool{false, true} {
		o, args := Options{Service: "wms-cincout"}, amqp.Table{argDLX: "amq.direct", "x-max-length": 7, "x-expires": 3600000}
		want := map[string]string{
			"x-dead-letter-exchange wms.retry-exchange.wms-cincout": "amq.direct", "x-dead-letter-routing-key retry": "none",
			"x-max-length none": "7", "x-expires none": "3600000",
		}
		if quorum {
			o.QueueType, args[argType] = typeQuorum, typeQuorum
			want["x-overflow reject-publish"], want["x-dead-letter-strategy at-least-once"] = "none", "none"
		}
		p := build(t, o)
		if _, err := ch.QueueDeclare(p.Queue, true, false, false, false, args); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []Mode{ModeDeclare, ModeVerify} {
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
		if _, err := ch.QueueDelete(p.Queue, false, false, false); err != nil {
			t.Fatal(err)
		}
		e := newEnsurer(session(t, url), p, ModeDeclare)
		if err := e.moreDrift(context.Background(), p.queue(p.Queue), "x-max-length", "7"); err != nil {
			t.Error(err)
		}
		if _, err := channel(t, url).QueueDeclarePassive(p.Queue, true, false, false, false, nil); err == nil {
			t.Error("a queue that had gone was declared by looking at it")
		}
		remove(t, ch, p)
	}
}

func TestAdopt(t *testing.T) {
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

// remove takes a plan's objects out of a virtual host.
func remove(t testing.TB, ch *amqp.Channel, p *Plan) {
	t.Helper()
	for _, q := range p.Queues {
		if _, err := ch.QueueDelete(q.Name, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range p.Exchanges {
		if err := ch.ExchangeDelete(e.Name, false, false); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExclusiveQueueIsRefused: somebody's connection holds the name.
func TestExclusiveQueueIsRefused(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout"})
	if _, err := channel(t, url).QueueDeclare(p.Queue, true, false, true, false, nil); err != nil {
		t.Fatal(err)
	}
	f := ensure(t, url, p, ModeVerify)
	f = slices.DeleteFunc(f, func(f Finding) bool { return f.Problem == ProblemMissing })
	if len(f) != 1 || f[0].Problem != ProblemRefused || !strings.Contains(f[0].Found, "405") {
		t.Errorf("%v", f)
	}
}

// TestVhostThatMakesQuorumQueues: a declaration without a type is not a classic queue there, and one with the broker's
// own delivery limit loses messages.
func TestVhostThatMakesQuorumQueues(t *testing.T) {
	name := brokertest.Name(t, "vhost")
	brokertest.Ctl(t, "add_vhost", name, "--default-queue-type", "quorum")
	brokertest.CtlLater(t, "delete_vhost", name)
	brokertest.Ctl(t, "set_permissions", "-p", name, "guest", ".*", ".*", ".*")
	url := strings.TrimSuffix(brokertest.URL(t), "/") + "/" + name
	f := ensure(t, url, build(t, Options{Service: "wms-cincout"}), ModeDeclare)
	if len(f) != 3 || f[0].Found != "quorum" || !strings.Contains(f[0].Fix, "SIDECAR_QUEUE_TYPE=quorum") {
		t.Errorf("%v", f)
	}
}

func TestForeignExchange(t *testing.T) {
	url := brokertest.Vhost(t)
	p := build(t, Options{Service: "wms-cincout", Bindings: []Binding{{Exchange: "foreign", Key: "k"}}})
	for _, mode := range []Mode{ModeDeclare, ModeVerify} {
		f := ensure(t, url, p, mode)
		if len(f) == 0 || f[0].Object != `exchange "foreign"` || f[0].Problem != ProblemMissing || !strings.Contains(f[0].Fix, "owner") {
			t.Errorf("%s: %v", mode, f)
		}
		if mode == ModeDeclare && len(f) != 1 {
			t.Errorf("said twice: %v", f)
		}
	}
	if err := channel(t, url).ExchangeDeclare("foreign", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	fits(t, url, p, ModeDeclare)
	publish(t, url, "foreign", "k", amqp.Publishing{})
}

// TestSessionTrouble: a lost connection says nothing about the topology.
func TestSessionTrouble(t *testing.T) {
	p := build(t, Options{Service: "wms-cincout"})
	s := session(t, brokertest.URL(t))
	s.Kill()
	if EnsureAtOnce(context.Background(), s, p, ModeDeclare) {
		t.Error("a lost connection fits")
	}
	for name, do := range map[string]func() error{
		"ensure":      func() error { _, err := Ensure(context.Background(), s, p, ModeDeclare); return err },
		"verify":      func() error { _, err := Ensure(context.Background(), s, p, ModeVerify); return err },
		"depths":      func() error { _, _, err := Depths(context.Background(), s, p); return err },
		"preflight":   func() error { _, err := Preflight(context.Background(), s, p, ModeDeclare); return err },
		"may publish": func() error { _, err := MayPublish(context.Background(), s, p, ModeDeclare); return err },
	} {
		if err := do(); err == nil {
			t.Errorf("%s: a lost connection went unnoticed", name)
		}
	}
}

// TestOneQuestionTooMany: an answer that costs the connection is not an answer.
func TestOneQuestionTooMany(t *testing.T) {
	p := prober{s: session(t, brokertest.URL(t))}
	refusal, err := p.ask(context.Background(), "ask for the impossible", func(ch *amqp.Channel, _ bool) error {
		if err := ch.Publish("", "x", false, true, amqp.Publishing{}); err != nil { // immediate: NOT_IMPLEMENTED
			return err
		}
		_, err := ch.QueueDeclarePassive("x", true, false, false, false, nil)
		return err
	})
	if refusal != nil || err == nil {
		t.Errorf("%v, %v", refusal, err)
	}
}
