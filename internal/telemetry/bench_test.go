package telemetry

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

var attrs = Attrs{MessageID: "m-1", Exchange: "wms.main-exchange", RoutingKey: "k", BodySize: 1024}

func BenchmarkOffWithContext(b *testing.B) {
	h := amqp.Table{"traceparent": parent, "tracestate": "a=1", "x-other": "y"}
	benchmarkMessage(b, nil, h)
}

func BenchmarkOffWithoutContext(b *testing.B) { benchmarkMessage(b, nil, nil) }

func benchmarkMessage(b *testing.B, t *Tracing, h amqp.Table) {
	b.Helper()
	b.ReportAllocs()
	for b.Loop() {
		message(t, h)
	}
}

func message(t *Tracing, h amqp.Table) {
	s := t.Process(CarrierFrom(h), attrs)
	s.Client()
	s.ClientEnd(true, 204, "", "")
	s.Settle("ack")
	_ = s.TraceID()
	s.End("ack", "success")
}

func TestOffAllocatesOnlyAFreshTraceparent(t *testing.T) {
	var off *Tracing
	with, messages := amqp.Table{"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}, make([]Span, 3)
	for _, c := range []struct {
		what string
		do   func()
		want float64
	}{
		{"a message with a context", func() { message(off, with) }, 0},
		{"a message without one", func() { message(off, nil) }, 1},
		{"a batch", func() {
			post := off.Batch(len(messages), func(i int) *Span { return &messages[i] })
			if post.Carrier() != (Carrier{}) {
				t.Errorf("trace context %+v", post.Carrier())
			}
			post.ClientEnd(true, 204, "", "")
		}, 0},
	} {
		if n := testing.AllocsPerRun(100, c.do); n != c.want {
			t.Errorf("%s: %v allocations, want %v", c.what, n, c.want)
		}
	}
}
