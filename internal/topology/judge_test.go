package topology

import (
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/testkit/must"
)

// asFound returns what a broker has where everything is as planned but for one queue or exchange.
func asFound(p *Plan, name string, change amqp.Table) Found {
	f := Found{Queues: map[string]amqp.Table{}, Exchanges: map[string]amqp.Table{}, Major: 4}
	put := func(all map[string]amqp.Table, other string, properties amqp.Table) {
		if all[other] = properties; other == name {
			maps.Copy(properties, change)
			maps.DeleteFunc(properties, func(_ string, v any) bool { return v == nil })
		}
	}
	for i := range p.Queues {
		put(f.Queues, p.Queues[i].Name, p.Queues[i].Properties())
	}
	for i := range p.Exchanges {
		put(f.Exchanges, p.Exchanges[i].Name, p.Exchanges[i].Properties())
	}
	return f
}

// TestJudgements is the table: one property at a time, on one kind of object.
func TestJudgements(t *testing.T) {
	t.Parallel()
	const own, wait, dlq, main, back = "wms.queue.wms-in", "wms.retry-queue.wms-in", "wms.dlq.wms-in", "wms.main-exchange", "wms.retry-exchange.wms-in"
	classic, quorum := Options{Service: "wms-in", QueueType: TypeClassic}, Options{Service: "wms-in", QueueType: TypeQuorum}
	ordered := Options{Service: "wms-in", QueueType: TypeClassic, SingleActive: true}
	native, many := Options{Preset: PresetNative, Service: "wms-in"}, Options{Preset: PresetNative, Service: "wms-in", MaxRetries: new(30)}
	for _, c := range []struct {
		o         Options
		name      string
		found     amqp.Table
		judgement Judgement
		reason    string
	}{
		{classic, own, amqp.Table{"x-max-priority": int64(10)}, Harmless, "do not depend on it"},
		{ordered, own, amqp.Table{ArgSingleConsumer: nil}, Breaks, "out of order"},
		{ordered, own, amqp.Table{ArgSingleConsumer: false}, Breaks, "out of order"},
		{classic, own, amqp.Table{ArgType: TypeQuorum}, Harmless, "do not depend on it"},
		{classic, own, amqp.Table{ArgDLX: nil, ArgDLKey: nil}, Harmless, "do not depend on it"},
		{classic, own, amqp.Table{argMaxLength: int64(9), ArgOverflow: overflowReject}, Weaker, "a retry that returns meanwhile is lost"},
		{classic, own, amqp.Table{argMaxLength: int64(9)}, Weaker, "its oldest message leaves"},
		{classic, own, amqp.Table{ArgTTL: int64(9)}, Weaker, "go round"},
		{classic, own, amqp.Table{"x-from-the-future": int64(9)}, Weaker, "not known here"},
		{classic, own, amqp.Table{PropertyDurable: false}, Weaker, "restarts"},
		{classic, own, amqp.Table{PropertyAutoDelete: true}, Breaks, "a sidecar that pauses"},
		{classic, own, amqp.Table{argExpires: int64(9)}, Breaks, "without one (x-expires)"},
		{classic, own, amqp.Table{ArgType: "stream"}, Breaks, "stream queue"},
		{quorum, own, amqp.Table{ArgType: TypeClassic, ArgStrategy: nil, ArgOverflow: nil, ArgDeliveryLimit: nil}, Weaker, "kept by one node"},
		{quorum, own, amqp.Table{ArgDeliveryLimit: nil}, Weaker, "more than 20 times"},
		{quorum, own, amqp.Table{ArgDeliveryLimit: int64(20)}, Weaker, "more than 20 times"},
		{quorum, own, amqp.Table{ArgDeliveryLimit: int64(1000)}, Weaker, "more than 1000 times"},
		{quorum, own, amqp.Table{ArgDeliveryLimit: int64(2)}, Breaks, "lost connections are enough"},
		{quorum, own, amqp.Table{ArgDeliveryLimit: int64(-1)}, Harmless, "do not depend on it"},
		{quorum, own, amqp.Table{argMaxLength: int64(9)}, Harmless, "do not depend on it"},
		{quorum, own, amqp.Table{argConsumerTimeout: int64(1000)}, Breaks, "again and again"},
		{quorum, own, amqp.Table{"x-delayed-retry-type": "all"}, Weaker, "waits in the broker, too"},
		{quorum, own, amqp.Table{ArgRetryType: "returned"}, Weaker, "waits in the broker, too"},
		{quorum, own, amqp.Table{ArgRetryType: delayFailed}, Harmless, "do not depend on it"},
		{native, own, amqp.Table{ArgRetryType: nil, ArgRetryMin: nil, ArgRetryMax: nil}, Weaker, "unless a policy says so"},
		{native, own, amqp.Table{ArgRetryType: delayAll}, Weaker, "waits in the broker, too"},
		{native, own, amqp.Table{ArgRetryType: "returned"}, Breaks, "delivered again at once"},
		{native, own, amqp.Table{ArgRetryType: delayNothing}, Breaks, "delivered again at once"},
		{native, own, amqp.Table{ArgRetryMin: int64(9)}, Harmless, "do not depend on it"},
		{native, own, amqp.Table{ArgType: TypeClassic, ArgRetryType: nil}, Breaks, "only a quorum queue"},
		{native, own, amqp.Table{ArgDLX: "elsewhere"}, Weaker, "elsewhere than what is parked"},
		{native, own, amqp.Table{ArgDeliveryLimit: int64(9)}, Breaks, "before its retries are used up"},
		{native, own, amqp.Table{ArgDeliveryLimit: int64(10)}, Weaker, "more than 10 times"},
		{native, own, amqp.Table{ArgDeliveryLimit: nil}, Weaker, "more than 20 times"},
		{many, own, amqp.Table{ArgDeliveryLimit: nil}, Breaks, "before its retries are used up"},
		{native, own, amqp.Table{ArgDeliveryLimit: int64(-1)}, Weaker, "again after each delay"},
		{native, own, amqp.Table{ArgDeliveryLimit: int64(200_000)}, Harmless, "do not depend on it"},
		{native, own, amqp.Table{ArgDeliveryLimit: NoDeliveryLimit, ArgDLX: "retry", ArgDLKey: "retry"}, Weaker, "again after each delay"},
		{classic, wait, amqp.Table{ArgTTL: int64(9)}, Harmless, "retries wait in wms.retry-queue.wms-in.5s instead"},
		{classic, wait, amqp.Table{ArgTTL: nil}, Weaker, "retries wait in wms.retry-queue.wms-in.5s instead"},
		{classic, wait, amqp.Table{ArgDLKey: "elsewhere"}, Breaks, "does not return"},
		{classic, wait, amqp.Table{argExpires: int64(9)}, Breaks, "deletes the queue"},
		{classic, wait, amqp.Table{PropertyDurable: false}, Breaks, "restarts"},
		{classic, wait, amqp.Table{PropertyAutoDelete: true}, Weaker, "ever consumes from it"},
		{classic, wait, amqp.Table{argMaxLength: int64(9)}, Weaker, "before its delay"},
		{classic, wait, amqp.Table{argMaxLength: int64(9), ArgOverflow: overflowReject}, Harmless, "do not depend on it"},
		{quorum, wait, amqp.Table{ArgStrategy: nil, ArgOverflow: nil}, Weaker, "at most once"},
		{quorum, wait, amqp.Table{ArgDeliveryLimit: int64(1)}, Harmless, "do not depend on it"},
		{classic, dlq, amqp.Table{ArgTTL: int64(9)}, Breaks, "dropped after 9 ms"},
		{classic, dlq, amqp.Table{argMaxLength: int64(9)}, Weaker, "its oldest message leaves"},
		{classic, dlq, amqp.Table{argMaxLength: int64(9), ArgOverflow: overflowReject}, Harmless, "do not depend on it"},
		{classic, dlq, amqp.Table{ArgSingleConsumer: true}, Weaker, "cannot read it"},
		{quorum, dlq, amqp.Table{ArgType: TypeClassic, ArgDeliveryLimit: nil}, Weaker, "kept by one node"},
		{classic, main, amqp.Table{PropertyType: "topic"}, Breaks, "do not route"},
		{classic, main, amqp.Table{PropertyInternal: true}, Harmless, "do not depend on it"},
		{classic, main, amqp.Table{PropertyDurable: false}, Weaker, "restarts"},
		{classic, back, amqp.Table{PropertyInternal: true}, Breaks, "nothing can be published"},
		{classic, back, amqp.Table{PropertyAutoDelete: true}, Weaker, "last binding"},
		{classic, back, amqp.Table{ArgAlternate: "x"}, Weaker, "instead of being returned"},
	} {
		p := build(t, c.o)
		p.Attempt = time.Minute
		_, all := p.AsFound(asFound(p, c.name, c.found))
		worst := Difference{Judgement: Harmless}
		for _, d := range all {
			if d.Judgement <= worst.Judgement {
				worst = d
			}
			if d.Judgement == Breaks && (d.Fix == "" || strings.Contains(d.Fix, "delete")) {
				t.Errorf("%s %v: fix %q", c.name, c.found, d.Fix)
			}
		}
		if worst.Judgement != c.judgement || !strings.Contains(worst.Reason, c.reason) {
			t.Errorf("%s %v: %v", c.name, c.found, all)
		}
	}
}

// TestConsumerTimeout: only a quorum queue takes it. One that was not seen may be classic, and is asked only by what
// cannot do without.
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	const short, long, own = time.Minute, MaxHeld + 1, "wms.queue.wms-in"
	plan := func(queueType string, attempt time.Duration) *Plan {
		return must.Get(Build(Options{Service: "wms-in", QueueType: queueType, Attempt: attempt}))(t)
	}
	found := func(p *Plan, queueType string) *Plan {
		c, _ := p.AsFound(asFound(p, own, amqp.Table{ArgType: queueType}))
		return c
	}
	unseen, _ := plan(TypeQuorum, short).AsFound(Found{Unseen: map[string]bool{QueueTitle(own): true}})
	for name, c := range map[string]struct {
		p    *Plan
		want time.Duration
	}{
		"short": {plan(TypeQuorum, short), 30 * time.Minute}, "an hour": {plan(TypeQuorum, 3*short), time.Hour},
		"a day": {plan(TypeQuorum, 24*time.Hour), 20 * 24 * time.Hour}, "most": {plan(TypeQuorum, 40*24*time.Hour), 40 * 24 * time.Hour},
		"classic": {plan(TypeClassic, short), 0}, "auto": {plan(TypeAuto, short), 0}, "native": {must.Get(Build(Options{Service: "wms-in", Preset: PresetNative}))(t), 30 * time.Minute},
		"found classic": {found(plan(TypeQuorum, short), TypeClassic), 0}, "found quorum": {found(plan(TypeAuto, short), TypeQuorum), 30 * time.Minute},
		"unseen": {unseen, 0}, "not compared": {plan(TypeQuorum, short).Cautious(), 0}, "not compared, long": {plan(TypeQuorum, long).Cautious(), 20 * long},
	} {
		if got := c.p.ConsumerTimeout(19); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	p := plan(TypeQuorum, long)
	c, differences := p.AsFound(asFound(p, own, amqp.Table{ArgType: TypeClassic}))
	if len(differences) != 1 || differences[0].Judgement != Breaks || !strings.Contains(differences[0].Reason, "half hour") || c.ConsumerTimeout(1) != 0 {
		t.Errorf("long attempts and a classic queue: %+v", differences)
	}
}

// TestWhenRetriesArePublished: where a reject leads elsewhere than planned, and where what is rejected could be dropped.
func TestWhenRetriesArePublished(t *testing.T) {
	t.Parallel()
	classic := build(t, Options{Service: "wms-in", QueueType: TypeClassic})
	quorum := build(t, Options{Service: "wms-in", QueueType: TypeQuorum})
	for _, c := range []struct {
		p         *Plan
		queue     string
		found     amqp.Table
		published bool
	}{
		{classic, classic.Queue, amqp.Table{ArgDLX: "elsewhere"}, true}, {classic, classic.Queue, amqp.Table{ArgDLKey: "elsewhere"}, true},
		{classic, classic.Queue, amqp.Table{argMaxPriority: int64(9)}, false}, {quorum, quorum.Queue, amqp.Table{ArgStrategy: nil}, true},
		{quorum, quorum.Queue, amqp.Table{ArgRetryType: delayFailed, ArgRetryMin: int64(9)}, false},
		{classic, classic.Waits[0].Queue, amqp.Table{argMaxLength: int64(9), ArgOverflow: overflowReject}, true},
		{classic, classic.Waits[0].Queue, amqp.Table{argMaxBytes: int64(9)}, true},
		{classic, classic.Park.Queue, amqp.Table{argMaxLength: int64(9)}, false},
	} {
		got, all := c.p.AsFound(asFound(c.p, c.queue, c.found))
		if published := got.Waits[0].By != ByReject; published != c.published || len(all) == 0 {
			t.Errorf("%s %v: published %v, %v", c.queue, c.found, published, all)
		}
	}
}

// TestTypeOfWhatExists: a service's queue of the other type decides the type of what is missing, unless a type was asked
// for.
func TestTypeOfWhatExists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		o      Options
		found  string
		quorum bool
	}{
		{Options{Service: "wms-in"}, TypeQuorum, true}, {Options{Service: "wms-in", QueueType: TypeAuto}, TypeClassic, false},
		{Options{Service: "wms-in", QueueType: TypeClassic}, TypeQuorum, false}, {Options{Service: "wms-in", QueueType: TypeQuorum}, TypeClassic, true},
	} {
		p := build(t, c.o)
		got, _ := p.AsFound(Found{Queues: map[string]amqp.Table{p.Queue: {PropertyDurable: true, PropertyAutoDelete: false, ArgType: c.found}}})
		for _, q := range got.Queues {
			if q.Name != p.Queue && (q.Args[ArgType] == TypeQuorum) != c.quorum {
				t.Errorf("%+v beside a %s queue: %+v", c.o, c.found, q)
			}
		}
		if got.Quorum != c.quorum || got.Waits[0].By == ByReject {
			t.Errorf("%+v beside a %s queue: %+v", c.o, c.found, got)
		}
		if again := build(t, c.o); !reflect.DeepEqual(p, again) {
			t.Error("the plan itself was changed")
		}
	}
}

// TestRequeueLimit: a message does not come near a limit of deliveries.
func TestRequeueLimit(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-in", QueueType: TypeQuorum})
	for _, c := range []struct {
		limit any
		major int
		want  int
	}{
		{nil, 3, 0}, {nil, 4, 10}, {nil, 0, 10}, {int64(1), 4, 1}, {int64(3), 4, 1}, {int64(20), 4, 10}, {int64(1000), 4, 10}, {NoDeliveryLimit, 4, 0}, {int64(-1), 4, 0},
	} {
		f := asFound(p, p.Queue, amqp.Table{ArgDeliveryLimit: c.limit})
		f.Major = c.major
		if got, _ := p.AsFound(f); got.RequeueLimit != c.want {
			t.Errorf("limit %v on %d: %d, want %d", c.limit, c.major, got.RequeueLimit, c.want)
		}
	}
	if c := p.Cautious(); c.RequeueLimit != 10 || c.Waits[0].By == ByReject {
		t.Errorf("%+v", c)
	}
}

// TestQueueArguments: declared with the service's queue, also when its type is another one than planned.
func TestQueueArguments(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-in", QueueArguments: amqp.Table{"x-max-length": int64(5), ArgOverflow: overflowReject}})
	if q := p.queue(p.Queue); q.Args["x-max-length"] != int64(5) || q.Args[ArgOverflow] != overflowReject {
		t.Errorf("%v", q.Args)
	}
	f := asFound(p, p.Queue, amqp.Table{ArgType: TypeQuorum})
	if got, _ := p.AsFound(f); got.queue(p.Queue).Args["x-max-length"] != int64(5) {
		t.Errorf("%v", got.queue(p.Queue).Args)
	}
	for _, c := range []struct {
		args amqp.Table
		ttl  time.Duration
		want string
	}{
		{amqp.Table{ArgDLX: "x"}, 0, "is set by the topology"}, {amqp.Table{ArgType: TypeQuorum}, 0, "is set by the topology"},
		{amqp.Table{ArgOverflow: "drop-head"}, 0, "only reject-publish"}, {amqp.Table{"x-max-lengths": int64(1)}, 0, "not an argument"},
		{amqp.Table{argExpires: int64(1)}, 0, "deletes the queue"}, {amqp.Table{argConsumerTimeout: int64(1000)}, 0, "again and again"}, {amqp.Table{"x-nonsense": true}, 0, "not an argument"},
		{amqp.Table{"x max": int64(1)}, 0, "not an argument"}, {amqp.Table{"x.max-priority": int64(1)}, 0, "not an argument"}, {amqp.Table{"a/b:c": true}, 0, "not an argument"},
		{amqp.Table{argMaxPriority: "abc"}, 0, "0 to 255"}, {amqp.Table{argMaxPriority: int64(256)}, 0, "0 to 255"}, {amqp.Table{argMaxLength: int64(-5)}, 0, "at least 0"},
		{amqp.Table{ArgSingleConsumer: "yes"}, 0, "true or false"}, {amqp.Table{"x-queue-mode": int64(1)}, 0, "a text"}, {amqp.Table{ArgDeliveryLimit: "many"}, 0, "a number"}, {amqp.Table{ArgTTL: int64(1)}, time.Second, "SIDECAR_MESSAGE_TTL"},
	} {
		o := Options{Preset: PresetDeadLetter, Service: "a-b", Queue: "q", Bindings: []Binding{{Exchange: "e", Key: "k"}}, QueueArguments: c.args, MessageTTL: c.ttl, Attempt: 30 * time.Second}
		if _, err := Build(o); err == nil || !strings.Contains(err.Error(), "SIDECAR_QUEUE_ARGUMENTS: ") || strings.Contains(err.Error(), "SIDECAR_SERVICE") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v", c.args, err)
		}
	}
	for _, name := range []string{ArgRetryMin, ArgDeliveryLimit} { // are not to choose where the queue delays messages itself
		_, err := Build(Options{Preset: PresetNative, Service: "a-b", QueueArguments: amqp.Table{name: int64(5)}})
		if err == nil || err.Error() != "SIDECAR_QUEUE_ARGUMENTS: "+name+" is set by the topology" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
