package consume

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// discard settles into nothing: the benchmark measures what happens before the frame.
type discard struct{}

func (discard) Ack(uint64, bool) error { return nil }
func (discard) Requeue(uint64) error   { return nil }
func (discard) Reject(uint64) error    { return nil }

// BenchmarkSuccess is everything one acked message costs besides its POST and the broker client: reading the count,
// trace context, judging, settling, metrics, the log line (below the level), with every feature on and tracing off.
func BenchmarkSuccess(b *testing.B) {
	for name, headers := range map[string]amqp.Table{
		"with traceparent": {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		"without":          nil,
	} {
		b.Run(name, func(b *testing.B) {
			plan, err := topology.Build(topology.Options{Service: "wms-cincout"})
			if err != nil {
				b.Fatal(err)
			}
			registry := prometheus.NewRegistry()
			c := &Consumer{
				work: make(chan delivery), freed: make(chan struct{}, 1), stopping: make(chan struct{}),
				interrupt: context.Background(),
			}
			c.o = Options{
				Plan: plan, Concurrency: 1, Prefetch: 2, Dispatcher: ok{}, Logger: telemetry.NewLogger(io.Discard, "info", "json"),
				Flow: flow.New(flow.Options{Queue: plan.Queue, Concurrency: 1, Registerer: registry}),
			}
			c.metrics = newMetrics(registry, plan.Queue, func() float64 { return 0 }, func() float64 { return 0 })
			r := &run{c: c, done: make(chan struct{}), settler: newSettler(discard{}, 64, c.metrics)}
			r.plan.Store(plan)
			go r.settler.run()
			w := &worker{c: c}
			d := delivery{amqp.Delivery{
				Headers: headers, MessageId: "m", Exchange: "wms.main-exchange", Body: []byte("x"), Timestamp: time.Now(),
			}, r}
			b.ReportAllocs()
			for b.Loop() {
				d.DeliveryTag++
				r.receive(&d.Delivery)
				w.guarded(d)
			}
			close(r.settler.events)
			<-r.settler.done
		})
	}
}

type ok struct{}

func (ok) Dispatch(context.Context, *message.Message) message.Outcome {
	return message.Outcome{Status: 204, RetryAfter: -1}
}
