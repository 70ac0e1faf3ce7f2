package declare

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestMeasure: each queue has its depth, and a deleted queue or exchange is noticed, and so is its return.
func TestMeasure(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Hour})
	s, ch := session(t, url), channel(t, url)
	brokertest.Publish(t, ch, p.Waits[0].Exchange, p.Waits[0].Key, amqp.Publishing{})
	brokertest.Send(t, url, p.Queue, "x", "y")
	brokertest.WaitReady(t, url, p.Waits[0].Queue, 1)
	brokertest.WaitReady(t, url, p.Queue, 2)
	m := must.Get(Measure(t.Context(), s, p))(t)
	want := []Depth{
		{p.Park.Queue, p.Queue, topology.KindDLQ, 0}, {p.Waits[0].Queue, p.Queue, topology.KindRetry, 1},
		{p.Queue, p.Queue, topology.KindMain, 2},
	}
	if !slices.Equal(m.Depths, want) || m.Missing != nil {
		t.Errorf("%+v", m)
	}
	must.Get(ch.QueueDelete(p.Waits[0].Queue, false, false, false))(t)
	must.Do(t, ch.ExchangeDelete(p.Waits[0].Exchange, false, false))
	m = must.Get(Measure(t.Context(), s, p))(t)
	if f := m.Missing; len(m.Depths) != 2 || len(f) != 2 || f[0].Object != topology.ExchangeTitle(p.Waits[0].Exchange) ||
		f[1].Object != topology.QueueTitle(p.Waits[0].Queue) {
		t.Errorf("%+v", m)
	}
	fits(t, url, p, topology.ModeDeclare)
	if m = must.Get(Measure(t.Context(), s, p))(t); len(m.Depths) != 3 || m.Missing != nil {
		t.Errorf("%+v", m)
	}
}

// TestQueueWithoutAConsumer: it counts when messages wait.
func TestQueueWithoutAConsumer(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout"})
	s, ch := session(t, url), channel(t, url)
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{
		{"an empty queue", func() {}, false},
		{"a consumer that does not settle", func() {
			must.Do(t, ch.Qos(1, 0, false))
			must.Get(ch.Consume(p.Queue, "another", false, false, false, false, nil))(t)
			brokertest.Send(t, url, p.Queue, "x", "y", "z")
			brokertest.WaitReady(t, url, p.Queue, 2)
		}, false},
		{"messages without a consumer", func() { must.Do(t, ch.Cancel("another", false)) }, true},
	} {
		step.do()
		if m := must.Get(Measure(t.Context(), s, p))(t); m.Unconsumed != step.want {
			t.Errorf("%s: %v", step.what, m.Unconsumed)
		}
	}
}

// TestDepthsOfSeveralPlans: a queue that two plans have is one series, of the first plan that is measured.
func TestDepthsOfSeveralPlans(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	of := func(queue string) []Depth {
		return []Depth{{queue, queue, topology.KindMain, 1}, {"dlq", queue, topology.KindDLQ, 3}}
	}
	var last []Depth
	all := NewDepths(registry, func() []Depth { return last })
	for _, step := range []struct {
		last []Depth
		want map[string]float64
	}{
		{append(of("first"), of("second")...),
			map[string]float64{"first main of first": 1, "second main of second": 1, "dlq dlq of first": 3}},
		{of("second"), map[string]float64{"second main of second": 1, "dlq dlq of second": 3}},
		{nil, map[string]float64{}},
	} {
		last = step.last
		if got := gauges(t, registry); !maps.Equal(got, step.want) || all.All() == nil {
			t.Errorf("%v, want %v", got, step.want)
		}
	}
}

func gauges(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, f := range must.Get(r.Gather())(t) {
		if f.GetName() != "sidecar_queue_messages_ready" {
			t.Errorf("metric %s", f.GetName())
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			got[labels["queue"]+" "+labels["kind"]+" of "+labels["main"]] = m.GetGauge().GetValue()
		}
	}
	return got
}
