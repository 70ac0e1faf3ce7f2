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
	with := amqp.Table{"traceparent": parent, "tracestate": "a=1", "baggage": "k=v"}
	if n := testing.AllocsPerRun(100, func() { message(nil, with) }); n != 0 {
		t.Errorf("%v allocations with a context, want 0", n)
	}
	if n := testing.AllocsPerRun(100, func() { message(nil, nil) }); n != 1 {
		t.Errorf("%v allocations without a context, want 1", n)
	}
}

func TestBatchOffAllocatesNothing(t *testing.T) {
	messages := make([]Span, 3)
	if n := testing.AllocsPerRun(100, func() {
		var off *Tracing
		post := off.Batch(len(messages), func(i int) *Span { return &messages[i] })
		if post.Carrier() != (Carrier{}) {
			t.Errorf("trace context %+v", post.Carrier())
		}
		post.ClientEnd(true, 204, "", "")
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
