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
	all := []placement{
		{"ack", plain, withHeaders(8), ack},
		{"requeue/headers=8", tiers, withHeaders(8), requeue},
	}
	for _, n := range []int{0, 8, 64} {
		named := func(action string) string { return fmt.Sprintf("%s/headers=%d", action, n) }
		all = append(all, placement{named("retry-by-reject"), plain, withHeaders(n), retry},
			placement{named("retry-by-publish"), tiers, withHeaders(n), retry}, placement{named("park"), plain, withHeaders(n), park})
	}
	return all
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
