package topology

import (
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// arrived is a message on its way through the default plan of wms-cincout.
func arrived(change func(*message.Message)) *message.Message {
	m := &message.Message{
		Body: []byte("body"), Queue: "wms.queue.wms-cincout", Exchange: "wms.main-exchange", RoutingKey: "rk", MaxRetries: 10,
		Headers: amqp.Table{"x-a": "1"},
	}
	if change != nil {
		change(m)
	}
	return m
}

func verdict(a message.Action, r message.Reason) message.Verdict {
	return message.Verdict{Action: a, Reason: r, Cause: message.Outcome{Status: 503}}
}

// TestSettlementIsTotal walks every action, reason, plan and kind of message: nothing panics, and nothing leaves the
// queue without a trace unless the verdict says so.
func TestSettlementIsTotal(t *testing.T) {
	t.Parallel()
	plans := otherShapes(t)
	plans["fanout"] = build(t, Options{Service: "wms-cincout"})
	plans["fanout tiers"] = build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, time.Minute}})
	plans["fanout quorum"] = build(t, Options{Service: "wms-cincout", QueueType: "quorum"})
	plans["without reject"] = plans["fanout"].WithoutReject()
	plans["zero"] = &Plan{}
	messages := []*message.Message{
		{}, arrived(nil),
		arrived(func(m *message.Message) { m.Malformed, m.Headers = true, amqp.Table{"x-death": "zzz"} }),
		arrived(func(m *message.Message) { m.RetryCount = math.MaxInt32 }),
		arrived(func(m *message.Message) { m.RetryCount = -5 }),
		arrived(func(m *message.Message) { m.Headers["big"] = strings.Repeat("x", 130000) }),
	}
	for _, p := range plans {
		for a := range message.Actions + 1 {
			for r := range message.Reasons {
				for _, delay := range []time.Duration{-1, 0, time.Second, time.Hour} {
					for _, m := range messages {
						v := message.Verdict{Action: message.Action(a), Reason: message.Reason(r), Delay: delay}
						s := p.Settlement(m, v)
						wantTrace(t, p, v, &s)
					}
				}
			}
		}
	}
}

func TestRequeueAndItsDetour(t *testing.T) {
	t.Parallel()
	tiered := build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, 30 * time.Second}})
	v := message.Verdict{Action: message.Requeue, Reason: message.ReasonTooEarly, Delay: 2 * time.Second, Jitter: 3 * time.Second}
	s := tiered.Settlement(arrived(func(m *message.Message) {
		m.RetryCount, m.Headers["x-death"] = 4, []any{}
	}), v)
	if s.Final != FinalRequeue || s.Hold != 2*time.Second || s.Jitter != 3*time.Second || s.Publish != nil {
		t.Fatalf("%+v", s)
	}
	d := s.Detour
	if d == nil || d.Kind != message.KindRetry || d.Key != "30s" || d.Msg.Headers["x-retry-count"] != int32(4) {
		t.Fatalf("detour %+v: it waits at least the time that was asked for and is not counted", d)
	}
	if _, there := d.Msg.Headers["x-death"]; there {
		t.Error("a copied x-death would be counted once more")
	}

	v.Delay = time.Hour
	if s := tiered.Settlement(arrived(nil), v); s.Detour == nil || s.Detour.Key != "30s" {
		t.Errorf("the longest wait is nearest: %+v", s.Detour)
	}
	fanout := build(t, Options{Service: "wms-cincout"})
	if s := fanout.Settlement(arrived(nil), v); s.Detour == nil || s.Detour.Key != "retry" {
		t.Errorf("the retry queue is a detour too: %+v", s.Detour)
	}
	for name, s := range map[string]Settlement{
		"no queue to wait in":         otherShapes(t)["straight to the dlq"].Settlement(arrived(nil), v),
		"headers near the frame size": tiered.Settlement(arrived(func(m *message.Message) { m.Headers["b"] = strings.Repeat("x", 127500) }), v),
		"headers that would not fit":  tiered.Settlement(arrived(func(m *message.Message) { m.Headers["b"] = strings.Repeat("x", 126900) }), v),
	} {
		if s.Detour != nil || s.Final != FinalRequeue {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestDeferredGoesBehindTheOthers: by the way of redriven messages, which every plan has, and uncounted.
func TestDeferredGoesBehindTheOthers(t *testing.T) {
	t.Parallel()
	v := message.Verdict{Action: message.Release, Reason: message.ReasonDeferred}
	tried := func(m *message.Message) { m.RetryCount, m.Headers["x-death"] = 4, []any{} }
	for name, o := range map[string]Options{
		"fanout":      {Service: "wms-cincout"},
		"topic-tiers": {Service: "wms-cincout", Preset: PresetTopicTiers},
		"per-queue":   {Service: "wms-cincout", Preset: PresetPerQueue, Bindings: []Binding{{Exchange: "events", Key: "a.#"}}},
		"native":      {Service: "wms-cincout", Preset: PresetNative},
	} {
		p := build(t, o)
		s := p.Settlement(arrived(tried), v)
		want := p.Redrive
		if s.Final != FinalRequeue || s.Hold <= 0 || s.Publish != nil || s.Detour == nil {
			t.Fatalf("%s: %+v", name, s)
		}
		if d := s.Detour; d.Exchange != want.Exchange || d.Key != want.Key || d.Msg.Headers["x-retry-count"] != int32(4) ||
			d.Msg.Headers["x-death"] != nil || d.Msg.Headers["x-original-routing-key"] != "rk" {
			t.Errorf("%s: goes to %q %q with %v", name, d.Exchange, d.Key, d.Msg.Headers)
		}
	}
	p := build(t, Options{Service: "wms-cincout"})
	large := arrived(func(m *message.Message) { m.Headers["b"] = strings.Repeat("x", 127500) })
	if s := p.Settlement(large, v); s.Detour != nil || s.Final != FinalRequeue || s.Hold <= 0 {
		t.Errorf("headers near the frame size: %+v", s)
	}
	p.InPlace = true
	if s := p.Settlement(arrived(tried), v); s.Detour != nil || s.Final != FinalRequeue || s.Hold <= 0 {
		t.Errorf("in order: %+v", s)
	}
}

// TestRequeueOfUnknownQueues: where it is unknown the delivery limit a message does not come near it: a copy goes back in
// its place, which begins without the count of the original.
func TestRequeueOfUnknownQueues(t *testing.T) {
	t.Parallel()
	unlimited := build(t, Options{Service: "wms-cincout", QueueType: "quorum"})
	limited := *unlimited
	limited.RequeueLimit = 10
	straight := otherShapes(t)["straight to the dlq"]
	straight.RequeueLimit = 10
	early := message.Verdict{Action: message.Requeue, Reason: message.ReasonTooEarly, Delay: time.Second, Jitter: time.Second}
	release := message.Verdict{Action: message.Release, Reason: message.ReasonUndispatched}
	deferred := message.Verdict{Action: message.Release, Reason: message.ReasonDeferred}
	for _, c := range []struct {
		name   string
		p      *Plan
		v      message.Verdict
		count  any
		copied bool
		detour bool
	}{
		{"a queue without a limit", unlimited, early, int64(1000), false, true},
		{"far from any limit", &limited, early, int64(9), false, true},
		{"near the limit", &limited, early, int64(10), true, false},
		{"forged text", &limited, early, "10", false, true},
		{"forged number", &limited, early, int64(-10), false, true},
		{"no count", &limited, early, nil, false, true},
		{"released, far from any limit", &limited, release, int64(9), false, false},
		{"released near the limit", &limited, release, int64(10), true, false},
		{"deferred, far from any limit", &limited, deferred, int64(9), false, true},
		{"deferred near the limit", &limited, deferred, int64(10), true, false}, // a publish that fails would be counted
		{"without a queue to wait in", straight, early, int64(19), false, false},
		{"released without a queue to wait in", straight, release, int64(19), false, false},
	} {
		s := c.p.Settlement(arrived(func(m *message.Message) { m.RetryCount, m.Headers["x-delivery-count"] = 3, c.count }), c.v)
		want := map[bool]Final{false: FinalRequeue, true: FinalAck}[c.copied]
		if s.Final != want || (s.Publish != nil) != c.copied || (s.Detour != nil) != c.detour || s.Verdict != c.v || c.copied && s.Hold != 0 {
			t.Errorf("%s: %+v", c.name, s)
		}
		if !c.copied {
			continue
		}
		if _, kept := s.Publish.Msg.Headers["x-delivery-count"]; kept || s.Publish.Msg.Headers["x-retry-count"] != int32(3) {
			t.Errorf("%s: the copy has %v", c.name, s.Publish.Msg.Headers)
		}
		if c.v == deferred && s.Publish.Key != limited.Redrive.Key {
			t.Errorf("%s: goes to %s", c.name, s.Publish.Key)
		}
		if r := s.Released(message.ReasonShutdown); c.v == release && (r.Final != FinalRequeue || r.Publish != nil) {
			t.Errorf("released without a publish: %+v", r)
		}
	}
}

// twoWaysBack is p with a last wait that returns by another exchange and key.
func twoWaysBack(p *Plan) *Plan {
	ladder := *p
	ladder.Queues = slices.Clone(p.Queues)
	last := ladder.queue(ladder.Waits[len(ladder.Waits)-1].Queue)
	last.Args = maps.Clone(last.Args)
	last.Args["x-dead-letter-exchange"], last.Args["x-dead-letter-routing-key"] = "later", "user.later"
	return &ladder
}

// TestForeign: what another service retries is recognised by its stamp, and only where it can come by accident.
func TestForeign(t *testing.T) {
	t.Parallel()
	tiers, fanout := otherShapes(t)["topic-tiers"], build(t, Options{Service: "wms-cincout"})
	keyed := func(exchange, key string, stamp any) *amqp.Delivery {
		return &amqp.Delivery{Exchange: exchange, RoutingKey: key, Headers: amqp.Table{HeaderRetryQueue: stamp}}
	}
	from := func(exchange string, stamp any) *amqp.Delivery { return keyed(exchange, "audit.retry", stamp) }
	keep := *tiers
	keep.Queues = slices.Clone(tiers.Queues)
	for i := range keep.Queues {
		if q := &keep.Queues[i]; q.Kind == KindRetry {
			q.Args = maps.Clone(q.Args)
			delete(q.Args, ArgDLKey)
		}
	}
	for _, c := range []struct {
		name string
		p    *Plan
		d    *amqp.Delivery
		want bool
	}{
		{"another service's", tiers, from("freeflow.events", "freeflow.audit"), true},
		{"its own", tiers, keyed("freeflow.events", "user.retry", "freeflow.user"), false},
		{"of another queue of this service", tiers, keyed("freeflow.events", "user.retry", "freeflow.user2"), true},
		{"a first message with copied headers", tiers, keyed("freeflow.events", "user.created", "freeflow.audit"), false},
		{"without a key", tiers, keyed("freeflow.events", "", "freeflow.audit"), false},
		{"a way back that keeps the key", &keep, keyed("freeflow.events", "user.created", "freeflow.audit"), true},
		{"the first way back of two", twoWaysBack(tiers), from("freeflow.events", "freeflow.audit"), true},
		{"the second way back of two", twoWaysBack(tiers), keyed("later", "audit.later", "freeflow.audit"), true},
		{"no retry", tiers, from("freeflow.events", nil), false},
		{"not a stamp", tiers, from("freeflow.events", int32(1)), false},
		{"put here by name", tiers, from("", "freeflow.audit"), false},
		{"a topology without stamps", fanout, from("wms.main-exchange", "freeflow.audit"), false},
	} {
		if got := c.p.Foreign(c.d); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
	parked := tiers.Settlement(arrived(func(m *message.Message) { m.Headers[HeaderRetryQueue] = "freeflow.user" }), verdict(message.Park, message.ReasonMaxRetries)).Publish
	if _, there := parked.Msg.Headers[HeaderRetryQueue]; there {
		t.Error("a parked message is still on its way to a queue")
	}
}

// TestRead: the origin in a message's history counts where retries and redriven messages return. What was just published
// is from where it was published, whatever its headers say, and its retry is a publish that corrects them.
func TestRead(t *testing.T) {
	t.Parallel()
	tiers, fanout := otherShapes(t)["topic-tiers"], build(t, Options{Service: "wms-cincout"})
	redriving := *fanout
	redriving.Redrive.Exchange, redriving.Redrive.Key = "redrive", "all"
	ladder := twoWaysBack(tiers)
	claims := amqp.Table{"x-retry-count": int32(1), "x-original-exchange": "e", "x-original-routing-key": "k"}
	rejects := func(p *Plan) amqp.Table {
		return amqp.Table{"x-death": []any{amqp.Table{"queue": p.Queue, "reason": "rejected", "count": int64(1), "exchange": "e",
			"routing-keys": []any{"k"}}}}
	}
	for _, c := range []struct {
		name          string
		p             *Plan
		exchange, key string
		headers       amqp.Table
		believed      bool
	}{
		{"through the default exchange", fanout, "", fanout.Queue, claims, true},
		{"counted by the broker", fanout, "", fanout.Queue, rejects(fanout), true},
		{"just published with copied headers", fanout, "wms.main-exchange", "order.created", claims, false},
		{"just published with a copied x-death", fanout, "wms.main-exchange", "order.created", rejects(fanout), false},
		{"redriven through an exchange", &redriving, "redrive", "all", claims, true},
		{"with another key through that exchange", &redriving, "redrive", "none", claims, false},
		{"the way back of the retries", tiers, "freeflow.events", "user.retry", claims, true},
		{"of another consumer's retries", tiers, "freeflow.events", "audit.retry", claims, true},
		{"just published to the exchange of the way back", tiers, "freeflow.events", "user.created", claims, false},
		{"the way back of the first wait", ladder, "freeflow.events", "user.retry", claims, true},
		{"the way back of another wait", ladder, "later", "user.later", claims, true},
		{"by the exchange of one and the key of another", ladder, "later", "user.retry", claims, false},
		{"just published elsewhere", tiers, "other", "user.retry", claims, false},
	} {
		var m message.Message
		c.p.Read(&m, &amqp.Delivery{Exchange: c.exchange, RoutingKey: c.key, Headers: c.headers})
		want := [2]string{c.exchange, c.key}
		if c.believed {
			want = [2]string{"e", "k"}
		}
		s := c.p.Settlement(&m, verdict(message.Retry, message.ReasonServerError))
		if got := [2]string{m.Exchange, m.RoutingKey}; got != want || !c.believed && s.Publish == nil {
			t.Errorf("%s: from %q, want %q; settled by %+v", c.name, got, want, s)
		}
		if s.Publish == nil {
			continue
		}
		var again message.Message
		c.p.Read(&again, &amqp.Delivery{RoutingKey: c.p.Queue, Headers: s.Publish.Msg.Headers})
		if got := [2]string{again.Exchange, again.RoutingKey}; got != want {
			t.Errorf("%s: from %q after a retry, want %q", c.name, got, want)
		}
	}
}

var errRefused = errors.New("dial tcp 127.0.0.1:8080: connect: connection refused")
