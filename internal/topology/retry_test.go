package topology

import (
	"maps"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

func TestRetryLeavesByPublish(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	stamped := *p
	stamped.StampQueue = true
	death := []any{amqp.Table{"count": int64(2), "reason": "rejected", "queue": "wms.queue.wms-cincout", "exchange": "", "routing-keys": []any{"rk"}}}
	for _, c := range []struct {
		name   string
		plan   *Plan
		change func(*message.Message)
		count  int32
	}{
		{"broken x-death", p, func(m *message.Message) { m.Malformed, m.Headers["x-death"] = true, "zzz" }, 1},
		{"back from the dead-letter queue", p, func(m *message.Message) {
			m.RetryCount, m.Headers["x-final-retry-count"], m.Headers["x-death"] = 3, int32(3), death
		}, 4},
		{"once expired in this queue", p, func(m *message.Message) { m.Looped, m.RetryCount, m.Headers["x-death"] = true, 2, death }, 3},
		{"moved by hand", p, func(m *message.Message) { m.Untrusted, m.RetryCount, m.Headers["x-death"] = true, 2, death }, 3},
		{"stamped elsewhere", &stamped, func(m *message.Message) { m.Headers[HeaderRetryQueue] = "other" }, 1},
		{"binding not proven", p.WithoutReject(), func(m *message.Message) { m.RetryCount, m.Headers["x-death"] = 2, death }, 3},
		{"count at its limit", p.WithoutReject(), func(m *message.Message) { m.RetryCount = math.MaxInt32 }, math.MaxInt32},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := arrived(c.change)
			s := c.plan.Settlement(m, verdict(message.Retry, message.ReasonServerError))
			if s.Final != FinalAck || s.Publish == nil || s.Verdict.Action != message.Retry {
				t.Fatalf("%+v", s)
			}
			if s.Publish.Kind != message.KindRetry || s.Publish.Exchange != "wms.retry-exchange.wms-cincout" || s.Publish.Key != "retry" {
				t.Errorf("goes to %+v", s.Publish)
			}
			h := s.Publish.Msg.Headers
			if _, there := h["x-death"]; there || h["x-retry-count"] != c.count {
				t.Errorf("headers %v, want x-retry-count %d and no x-death", h, c.count)
			}
		})
	}
	if p.Waits[0].By != ByReject {
		t.Error("WithoutReject changed the plan it came from")
	}
}

func TestRetryChoosesATier(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, 30 * time.Second, 5 * time.Minute}})
	for _, c := range []struct {
		name    string
		retries int
		delay   time.Duration
		key     string
		pause   time.Duration
	}{
		{"first failure", 0, 0, "1s", 0},
		{"second", 1, 0, "30s", 0},
		{"third", 2, 0, "5m", 0},
		{"the last one repeats", 9, 0, "5m", 0},
		{"a count out of nowhere", -1, 0, "1s", 0},
		{"smallest that covers", 0, 20 * time.Second, "30s", 0},
		{"covers exactly", 2, time.Second, "1s", 0},
		{"nothing covers", 1, time.Hour, "30s", time.Hour},
	} {
		t.Run(c.name, func(t *testing.T) {
			v := verdict(message.Retry, message.ReasonRateLimited)
			v.Delay = c.delay
			s := p.Settlement(arrived(func(m *message.Message) { m.RetryCount = c.retries }), v)
			if s.Publish == nil || s.Publish.Key != c.key || s.Pause != c.pause || s.Final != FinalAck {
				t.Errorf("%+v, want key %s and a pause of %v", s, c.key, c.pause)
			}
		})
	}
}

// TestInPlace: a plan of messages in order publishes no retry and no detour: they wait here, unsettled.
func TestInPlace(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, 30 * time.Second}})
	p.InPlace, p.RequeueLimit = true, 1
	near := func(m *message.Message) { m.Headers = amqp.Table{"x-delivery-count": int64(9)} }
	for _, c := range []struct {
		name    string
		action  message.Action
		retries int
		delay   time.Duration
		hold    time.Duration
	}{
		{"first failure", message.Retry, 0, 0, time.Second},
		{"second", message.Retry, 1, 0, 30 * time.Second},
		{"the last one repeats", message.Retry, 9, 0, 30 * time.Second},
		{"Retry-After", message.Retry, 0, 7 * time.Second, 7 * time.Second},
		{"425", message.Requeue, 0, 2 * time.Second, 2 * time.Second},
		{"given back", message.Release, 0, 0, 0},
	} {
		v := verdict(c.action, message.ReasonServerError)
		v.Delay = c.delay
		s := p.Settlement(arrived(func(m *message.Message) { near(m); m.RetryCount = c.retries }), v)
		if s.Publish != nil || s.Detour != nil || s.Final != FinalRequeue || s.Hold != c.hold || s.Pause != 0 || s.Verdict != v {
			t.Errorf("%s: %+v", c.name, s)
		}
	}
	if s := p.Settlement(arrived(nil), verdict(message.Park, message.ReasonMaxRetries)); s.Publish == nil || s.Final != FinalAck {
		t.Errorf("park: %+v", s)
	}
	p.Waits = nil
	if s := p.Settlement(arrived(nil), verdict(message.Retry, message.ReasonServerError)); s.Verdict.Action != message.Park {
		t.Errorf("without a delay: %+v", s)
	}
}

func TestRetryAfterWithoutTiersPauses(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	v := verdict(message.Retry, message.ReasonRateLimited)
	v.Delay = 2 * time.Second
	if s := p.Settlement(arrived(nil), v); s.Final != FinalReject || s.Pause != 2*time.Second {
		t.Errorf("%+v", s)
	}
	v = verdict(message.Park, message.ReasonMaxRetries)
	v.Pause = time.Minute
	if s := p.Settlement(arrived(nil), v); s.Pause != time.Minute {
		t.Errorf("the verdict's own pause is lost: %+v", s)
	}
}

func TestRetryThatCannotLeaveParks(t *testing.T) {
	t.Parallel()
	p := build(t, Options{Service: "wms-cincout"})
	tiered := build(t, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second}})
	big := func(n int) func(*message.Message) {
		return func(m *message.Message) { m.Headers["big"] = strings.Repeat("x", n) }
	}
	for _, c := range []struct {
		name   string
		plan   *Plan
		change func(*message.Message)
		reason message.Reason
	}{
		{"headers near the frame size", p, big(127000), message.ReasonHeadersTooLarge},
		{"with tiers too", tiered, big(127000), message.ReasonHeadersTooLarge},
		{"headers that only fit as they came", tiered, big(126900), message.ReasonHeadersTooLarge},
		{"copy keys that the broker would double", p, func(m *message.Message) {
			m.Headers["CC"] = []any{strings.Repeat("k", 200), strings.Repeat("k", 70000)}
		}, message.ReasonHeadersTooLarge},
		{"no way to wait", otherShapes(t)["straight to the dlq"], nil, message.ReasonMaxRetries},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := c.plan.Settlement(arrived(c.change), verdict(message.Retry, message.ReasonServerError))
			if s.Verdict.Action != message.Park || s.Verdict.Reason != c.reason || s.Final != FinalAck {
				t.Fatalf("%+v", s.Verdict)
			}
			if s.Publish == nil || s.Publish.Kind != message.KindPark || s.Publish.Msg.Headers["x-final-reason"] != c.reason.String() {
				t.Errorf("publishes %+v", s.Publish)
			}
			if s.Publish.Msg.Headers["x-final-status-code"] != int32(503) {
				t.Error("the answer of the attempt is lost")
			}
		})
	}
	below := arrived(big(126000))
	if s := p.Settlement(below, verdict(message.Retry, message.ReasonServerError)); s.Final != FinalReject {
		t.Errorf("a table with room for the broker is rejected: %+v", s.Verdict)
	}
}

// TestRetryPublicationKeepsTheMessage: everything a reader or the broker needs survives, nothing that would act on
// the broker does.
func TestRetryPublicationKeepsTheMessage(t *testing.T) {
	t.Parallel()
	m := whole(amqp.Table{
		"x-a": "1", "CC": []any{"elsewhere"}, "BCC": []any{"hidden"}, "x-death": []any{}, "x-first-death-queue": "q",
		"x-last-death-reason": "rejected", "x-delivery-count": int64(3), "x-acquired-count": int64(4), "cc": "mine",
	})
	before := maps.Clone(m.Headers)
	p := otherShapes(t)["topic-tiers"]
	p.CountHeader = "x-delivery-count"
	got := p.Settlement(m, verdict(message.Retry, message.ReasonServerError)).Publish
	want := &message.Publication{
		Kind: "retry", Exchange: "freeflow.events.retry", Key: "user.5m",
		Msg: wholePublishing(amqp.Table{
			"x-a": "1", "cc": "mine", "x-retry-count": int32(3),
			"x-original-exchange": "wms.main-exchange", "x-original-routing-key": "orders.new",
			"x-original-expiration": "60000", "x-original-user-id": "guest",
			"x-original-cc": []any{"elsewhere"}, "x-original-bcc": []any{"hidden"},
			"x-retry-queue": "freeflow.user", "x-delivery-count": "4",
		}),
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if !reflect.DeepEqual(m.Headers, before) {
		t.Error("the message's own header table was changed")
	}
}
