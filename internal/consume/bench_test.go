package consume

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/memory"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// counting settles into nothing and counts the frames that it would have taken.
type counting struct{ frames int }

func (c *counting) Ack(uint64, bool) error { c.frames++; return nil }
func (c *counting) Requeue(uint64) error   { c.frames++; return nil }
func (c *counting) Reject(uint64) error    { c.frames++; return nil }
func (c *counting) Delay(uint64) error     { c.frames++; return nil }

type ok struct{}

func (ok) Dispatch(context.Context, *message.Message) message.Outcome {
	return message.Outcome{Status: 204, RetryAfter: -1}
}

func benchOptions(tb testing.TB, concurrency int) Options {
	tb.Helper()
	plan := must.Get(topology.Build(topology.Options{Service: "wms-cincout"}))(tb)
	registry := prometheus.NewRegistry()
	return Options{
		Plan: plan, Concurrency: concurrency, Prefetch: 2 * concurrency, Dispatcher: ok{}, Registerer: registry,
		Logger: telemetry.NewLogger(io.Discard, "info", "json"),
		Flow: flow.New(flow.Options{
			Concurrency: concurrency, Registerer: registry,
			CountRefused: true, // open without a probe
		}),
	}
}

// benchDelivery is a delivery as it comes from the broker's client: in memory that an earlier one gave back.
func benchDelivery(tag uint64, headers amqp.Table, at time.Time) *broker.Delivery {
	d := amqpwire.NewDelivery()
	d.Body, d.Identity = append(d.Body, 'x'), 1
	d.DeliveryTag, d.Headers, d.MessageId, d.Exchange, d.Timestamp = tag, headers, "m", "wms.main-exchange", at
	return d
}

// line is everything one acked message passes through besides its POST and the broker client: reading the count, trace
// context, judging, settling, metrics, the log line (below the level), with every feature on and tracing off. The
// returned function takes one message through it.
func line(tb testing.TB, headers amqp.Table) (next func()) {
	tb.Helper()
	c := New(benchOptions(tb, 1))
	tb.Cleanup(func() { c.Drain(context.Background()) })
	r := benchSession(tb, c)
	var a attempt // no hand-over to a worker
	tag, now := uint64(0), time.Now()
	return func() {
		tag++
		d := benchDelivery(tag, headers, now)
		r.receive(d)
		c.handle(&a, delivery{Delivery: d, session: r})
	}
}

// benchSession is a session that settles into nothing.
func benchSession(tb testing.TB, c *Consumer) *session {
	tb.Helper()
	r := &session{c: c, plan: func() *topology.Plan { return c.o.Plan }, done: make(chan struct{}), memory: c.memory.Session(64)}
	r.settler = newSettler(&counting{}, max(64, c.o.Prefetch), c.metrics, r.memory)
	r.settler.ordered = c.order != nil
	r.leaving, r.leave = context.WithCancel(tb.Context())
	context.AfterFunc(r.leaving, func() { signal(c.woken) })
	c.background.Go(r.settler.run)
	tb.Cleanup(func() {
		r.outstanding.Wait()
		close(r.settler.endings)
	})
	return r
}

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func traced() amqp.Table { return amqp.Table{"traceparent": traceparent} }

func retried() amqp.Table {
	return amqp.Table{"traceparent": traceparent, "x-death": []any{amqp.Table{
		"count": int64(1), "reason": "rejected", "queue": "wms.queue.wms-cincout", "exchange": "wms.main-exchange",
		"routing-keys": []any{"order.created"},
	}}}
}

func BenchmarkSuccess(b *testing.B) {
	for _, c := range []struct {
		name    string
		headers amqp.Table
	}{{"traced", traced()}, {"untraced", nil}, {"retried", retried()}} {
		b.Run(c.name, func(b *testing.B) {
			next := line(b, c.headers)
			b.ReportAllocs()
			for b.Loop() {
				next()
			}
		})
	}
}

// The healthy path allocates nothing, except the text of a trace context for a message that brought none.
func TestSuccessAllocatesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		headers amqp.Table
		want    float64
	}{"traced": {traced(), 0}, "untraced": {nil, 1}, "retried": {retried(), 0}} {
		if n := testing.AllocsPerRun(1000, line(t, c.headers)); n != c.want {
			t.Errorf("%s: %v allocations, want %v", name, n, c.want)
		}
	}
}

// TestConsumingAllocatesNothing is the same with the hand-overs: from what has been received to a worker, from there to
// the settler.
func TestConsumingAllocatesNothing(t *testing.T) {
	c := New(benchOptions(t, 8))
	t.Cleanup(func() { c.Drain(context.Background()) })
	r := benchSession(t, c)
	deliveries := amqpwire.NewDeliveries(0)
	pumping := make(chan error)
	go func() { err := r.take(deliveries); r.leftover(); pumping <- err }()
	t.Cleanup(func() {
		c.Stop()
		if err := <-pumping; !errors.Is(err, errStopping) {
			t.Error(err)
		}
	})
	tag, now, headers := uint64(0), time.Now(), traced()
	next := func() { // waits for its message to reach a worker
		tag++
		deliveries.Add(benchDelivery(tag, headers, now))
		for c.Received() < int64(tag) {
			runtime.Gosched()
		}
	}
	for range 1000 {
		next() // until every worker has had one
	}
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestSettlerAllocatesNothing, in whichever order messages finish: in their own, backwards, or with the first one last.
func TestSettlerAllocatesNothing(t *testing.T) {
	const tags = 10_000
	for name, finished := range map[string]func(n uint64) uint64{
		"in order":   func(n uint64) uint64 { return n },
		"reversed":   func(n uint64) uint64 { return n/100*100 + 99 - n%100 },
		"stuck head": func(n uint64) uint64 { return n/tags*tags + (n+1)%tags },
	} {
		s, n := newSettler(&counting{}, 100, newMetrics(prometheus.NewRegistry(), &Consumer{memory: memory.New(nil, nil)}), memory.New(nil, nil).Session(100)), uint64(0)
		go s.run()
		finish := func() {
			s.endings <- ending{tag: 1 + finished(n), final: topology.FinalAck}
			n++
		}
		for range tags {
			finish()
		}
		if n := testing.AllocsPerRun(1000, finish); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
		close(s.endings)
		<-s.done
	}
}
