package consume

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
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
	plan, err := topology.Build(topology.Options{Service: "wms-cincout"})
	if err != nil {
		tb.Fatal(err)
	}
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
	var rec record // no hand-over to a worker
	tag, now := uint64(0), time.Now()
	return func() {
		tag++
		d := benchDelivery(tag, headers, now)
		r.receive(d)
		rec.begin(delivery{d, r, nil})
		c.guard(&rec, c.handle)
	}
}

// pumped is line with the hand-overs: from what has been received to a worker, from there to the settler. Every call
// waits for its message to reach a worker.
func pumped(tb testing.TB, concurrency int) (next func()) {
	tb.Helper()
	headers := traced()
	c := New(benchOptions(tb, concurrency))
	tb.Cleanup(func() { c.Drain(context.Background()) })
	r := benchSession(tb, c)
	deliveries := amqpwire.NewDeliveries(0)
	pumping := make(chan error)
	go func() { err := r.pump(deliveries); r.leftover(); pumping <- err }()
	tb.Cleanup(func() {
		c.Stop()
		if err := <-pumping; !errors.Is(err, errStopping) {
			tb.Error(err)
		}
	})
	tag, now := uint64(0), time.Now()
	return func() {
		tag++
		deliveries.Add(benchDelivery(tag, headers, now))
		for c.Received() < int64(tag) {
			runtime.Gosched()
		}
	}
}

// benchSession is a session that settles into nothing.
func benchSession(tb testing.TB, c *Consumer) *session {
	tb.Helper()
	r := &session{c: c, plan: func() *topology.Plan { return c.o.Plan }, done: make(chan struct{}), settler: newSettler(&counting{}, max(64, c.o.Prefetch), c.metrics, &c.remembered)}
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

// BenchmarkConsume is BenchmarkSuccess with two more hand-overs between goroutines, as every message takes them.
func BenchmarkConsume(b *testing.B) {
	for _, concurrency := range []int{1, 50} {
		b.Run(fmt.Sprintf("concurrency=%d", concurrency), func(b *testing.B) {
			next := pumped(b, concurrency)
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

func TestConsumingAllocatesNothing(t *testing.T) {
	next := pumped(t, 8)
	for range 1000 {
		next() // until every worker has had one
	}
	if n := testing.AllocsPerRun(1000, next); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// arrival is an order in which deliveries finish: it repeats after len(arrival) tags, which it is a permutation of.
type arrival struct {
	name string
	tags []uint64
}

const benchPrefetch = 100

func arrivals() []arrival {
	inOrder, reversed := make([]uint64, benchPrefetch), make([]uint64, benchPrefetch)
	for i := range inOrder {
		inOrder[i], reversed[i] = uint64(i+1), uint64(benchPrefetch-i)
	}
	random := make([]uint64, benchPrefetch)
	for i, p := range rand.New(rand.NewPCG(1, 1)).Perm(benchPrefetch) {
		random[i] = uint64(p + 1)
	}
	stuck := make([]uint64, 10_000) // the first of them finishes last
	for i := range stuck {
		stuck[i] = uint64((i+1)%len(stuck) + 1)
	}
	return []arrival{{"in-order", inOrder}, {"reversed", reversed}, {"random", random}, {"stuck-head", stuck}}
}

// next returns the tags one after the other, for ever.
func (a arrival) next() func() uint64 {
	i, base := 0, uint64(0)
	return func() uint64 {
		tag := base + a.tags[i]
		if i++; i == len(a.tags) {
			i, base = 0, base+uint64(len(a.tags))
		}
		return tag
	}
}

// coalesce is the window as the settler drives it when every 32nd event finds the channel empty.
func coalesce(a arrival) (ack func()) {
	w, next, n := newWindow(benchPrefetch), a.next(), 0
	return func() {
		w.ack(ending{tag: next()})
		if n++; n%32 > 0 {
			return
		}
		w.prefix()
		if w.crowded() {
			w.excess()
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	for _, a := range arrivals() {
		b.Run(a.name, func(b *testing.B) {
			ack := coalesce(a)
			b.ReportAllocs()
			for b.Loop() {
				ack()
			}
		})
	}
}

// settling hands finished deliveries to a settler. frames is what they took; it may be asked once, at the end.
func settling(tb testing.TB, a arrival) (finish func(), frames func() int) {
	tb.Helper()
	acker := &counting{}
	m := newMetrics(prometheus.NewRegistry(), &Consumer{})
	s, next := newSettler(acker, benchPrefetch, m, &remembered{}), a.next()
	go s.run()
	return func() { s.endings <- ending{tag: next(), final: topology.FinalAck} },
		func() int {
			close(s.endings)
			<-s.done
			return acker.frames
		}
}

// BenchmarkSettler also reports how many frames an ack takes when messages finish as fast as they can be settled.
func BenchmarkSettler(b *testing.B) {
	for _, a := range arrivals() {
		b.Run(a.name, func(b *testing.B) {
			finish, frames := settling(b, a)
			b.ReportAllocs()
			for b.Loop() {
				finish()
			}
			b.ReportMetric(float64(frames())/float64(b.N), "frames/op")
		})
	}
}

func TestSettlerAllocatesNothing(t *testing.T) {
	for _, a := range arrivals() {
		finish, frames := settling(t, a)
		for range len(a.tags) {
			finish()
		}
		if n := testing.AllocsPerRun(1000, finish); n != 0 {
			t.Errorf("%s: %v allocations", a.name, n)
		}
		frames()
	}
}
