package topology

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/message"
)

// placement is a verdict on a message, to be turned into what has to be done.
type placement struct {
	name string
	plan *Plan
	m    *message.Message
	v    message.Verdict
}

func placements(tb testing.TB) []placement {
	tb.Helper()
	plain := build(tb, Options{Service: "wms-cincout"})
	tiers := build(tb, Options{Service: "wms-cincout", RetryDelays: []time.Duration{time.Second, time.Minute}})
	ack := verdict(message.Ack, message.ReasonSuccess)
	retry := verdict(message.Retry, message.ReasonServerError)
	park := verdict(message.Park, message.ReasonMaxRetries)
	park.Cause.At = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	requeue := verdict(message.Requeue, message.ReasonTooEarly)
	requeue.Delay, requeue.Jitter = time.Second, time.Second
	return []placement{
		{"ack", plain, withHeaders(8), ack},
		{"retry-by-reject/headers=0", plain, withHeaders(0), retry},
		{"retry-by-reject/headers=8", plain, withHeaders(8), retry},
		{"retry-by-reject/headers=64", plain, withHeaders(64), retry},
		{"retry-by-publish/headers=0", tiers, withHeaders(0), retry},
		{"retry-by-publish/headers=8", tiers, withHeaders(8), retry},
		{"retry-by-publish/headers=64", tiers, withHeaders(64), retry},
		{"requeue/headers=8", tiers, withHeaders(8), requeue},
		{"park/headers=0", plain, withHeaders(0), park},
		{"park/headers=8", plain, withHeaders(8), park},
		{"park/headers=64", plain, withHeaders(64), park},
	}
}

func withHeaders(n int) *message.Message {
	return arrived(func(m *message.Message) {
		m.Headers = amqp.Table{}
		for i := range n {
			m.Headers[fmt.Sprintf("x-tenant-%02d", i)] = fmt.Sprintf("value-%d", i)
		}
	})
}

func BenchmarkSettlement(b *testing.B) {
	for _, p := range placements(b) {
		b.Run(p.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.plan.Settlement(p.m, p.v)
			}
		})
	}
}

// What leaves by a frame to the broker costs no memory; only a publication has to be made.
func TestSettlingByAFrameAllocatesNothing(t *testing.T) {
	for _, p := range placements(t) {
		if p.plan.Settlement(p.m, p.v).Publish != nil || p.v.Action == message.Requeue {
			continue
		}
		if n := testing.AllocsPerRun(100, func() { p.plan.Settlement(p.m, p.v) }); n != 0 {
			t.Errorf("%s: %v allocations", p.name, n)
		}
	}
}
