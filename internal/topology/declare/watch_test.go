package declare

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
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

func TestDepths(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Hour})
	fits(t, url, p, topology.ModeDeclare)
	ch := channel(t, url)
	brokertest.Publish(t, ch, p.Waits[0].Exchange, p.Waits[0].Key, amqp.Publishing{})
	for range 2 {
		brokertest.Publish(t, ch, "", p.Queue, amqp.Publishing{})
	}
	depths, missing, err := depthsOf(context.Background(), session(t, url), p)
	want := []Depth{
		{"wms.dlq.wms-cincout", p.Queue, topology.KindDLQ, 0}, {"wms.retry-queue.wms-cincout", p.Queue, topology.KindRetry, 1},
		{p.Queue, p.Queue, topology.KindMain, 2},
	}
	if err != nil || missing != nil || !reflect.DeepEqual(depths, want) {
		t.Errorf("%v, %v, %v", depths, missing, err)
	}
	must.Get(ch.QueueDelete(p.Waits[0].Queue, false, false, false))(t)
	must.Do(t, ch.ExchangeDelete(p.Waits[0].Exchange, false, false))
	depths, missing, err = depthsOf(context.Background(), session(t, url), p)
	if err != nil || len(depths) != 2 || len(missing) != 2 {
		t.Fatalf("%v, %v, %v", depths, missing, err)
	}
	for i, object := range []string{`exchange "wms.retry-exchange.wms-cincout"`, `queue "wms.retry-queue.wms-cincout"`} {
		if missing[i].Object != object || missing[i].Problem != ProblemMissing {
			t.Errorf("%v", missing[i])
		}
	}
}

// TestWatch: a deleted queue is noticed while the sidecar runs, and so is its return.
func TestWatch(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	fits(t, url, p, topology.ModeDeclare)
	registry := prometheus.NewRegistry()
	reports := make(chan []Finding)
	w := NewWatcher(WatchOptions{
		Every: 10 * time.Millisecond, Depths: NewDepths(registry),
		Report: func(f []Finding) { reports <- f },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Watch(ctx, session(t, url), func() *topology.Plan { return p }) }()

	if f := <-reports; f != nil {
		t.Errorf("all is there, but %v", f)
	}
	if got := gauges(t, registry); !reflect.DeepEqual(got, map[string]float64{
		"wms.dlq.wms-cincout dlq of " + p.Queue: 0, "wms.retry-queue.wms-cincout retry of " + p.Queue: 0,
		"wms.queue.wms-cincout main of " + p.Queue: 0,
	}) {
		t.Errorf("metrics %v", got)
	}
	must.Get(channel(t, url).QueueDelete(p.Waits[0].Queue, false, false, false))(t)
	for f := range reports {
		if len(f) == 1 && strings.Contains(f[0].Object, p.Waits[0].Queue) {
			break
		}
	}
	<-reports // the metrics are older than the report
	if got := gauges(t, registry); len(got) != 2 {
		t.Errorf("metrics %v", got)
	}
	fits(t, url, p, topology.ModeDeclare)
	for f := range reports {
		if len(f) == 0 {
			break
		}
	}
	cancel()
	for {
		select {
		case <-reports:
			continue
		case err := <-ended:
			if err != nil {
				t.Errorf("ended with %v", err)
			}
		}
		break
	}
	if got := gauges(t, registry); len(got) != 0 {
		t.Errorf("old depths are still shown: %v", got)
	}
}

// TestQueueWithoutAConsumer: a session ends whose consumer is gone although the broker has not cancelled it, and only
// while messages wait and this process takes itself for a consumer.
func TestQueueWithoutAConsumer(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	fits(t, url, p, topology.ModeDeclare)
	var consumes atomic.Bool
	checks := make(chan struct{})
	w := NewWatcher(WatchOptions{
		Every: 10 * time.Millisecond, Depths: NewDepths(prometheus.NewRegistry()), Consumes: consumes.Load,
		Report: func([]Finding) { checks <- struct{}{} },
	})
	ended := make(chan error)
	go func() { ended <- w.Watch(t.Context(), session(t, url), func() *topology.Plan { return p }) }()
	goesOn := func(what string) {
		t.Helper()
		for range 5 {
			select {
			case <-checks:
			case err := <-ended:
				t.Fatalf("%s: ended with %v", what, err)
			}
		}
	}
	ch := channel(t, url)
	consumes.Store(true)
	goesOn("the queue is empty")
	must.Do(t, ch.Qos(1, 0, false))
	must.Get(ch.Consume(p.Queue, "another", false, false, false, false, nil))(t)
	for range 3 {
		brokertest.Publish(t, ch, "", p.Queue, amqp.Publishing{})
	}
	goesOn("a consumer that does not settle")
	consumes.Store(false)
	<-checks // it may have read consumes before
	must.Do(t, ch.Cancel("another", false))
	goesOn("this process has no consumer")
	consumes.Store(true)
	for {
		select {
		case <-checks:
			continue
		case err := <-ended:
			if !errors.Is(err, ErrNoConsumer) || !strings.Contains(err.Error(), p.Queue) {
				t.Errorf("ended with %v, want ErrNoConsumer for %q", err, p.Queue)
			}
		}
		break
	}
}

// TestWatchOnRequest: a reader of the depths can have newer ones.
func TestWatchOnRequest(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	fits(t, url, p, topology.ModeDeclare)
	ask, looked := make(chan struct{}), make(chan struct{})
	w := NewWatcher(WatchOptions{
		Every: time.Hour, Ask: ask, Depths: NewDepths(prometheus.NewRegistry()),
		Report: func([]Finding) { looked <- struct{}{} },
	})
	if d := w.depths(); d != nil {
		t.Errorf("there is no watcher, and yet: %v", d)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Watch(ctx, session(t, url), func() *topology.Plan { return p }) }()
	<-looked
	if d := w.depths(); len(d) != 3 || d[2] != (Depth{p.Queue, p.Queue, topology.KindMain, 0}) {
		t.Errorf("%v", d)
	}
	brokertest.Send(t, url, p.Queue, "x")
	brokertest.WaitReady(t, url, p.Queue, 1)
	ask <- struct{}{}
	<-looked
	if d := w.depths(); len(d) != 3 || d[2].Ready != 1 {
		t.Errorf("%v", d)
	}
	cancel()
	must.Do(t, <-ended)
	if d := w.depths(); d != nil {
		t.Errorf("there is no watcher any more, and yet: %v", d)
	}
}

func TestWatchEndsWithItsSession(t *testing.T) {
	t.Parallel()
	w := NewWatcher(WatchOptions{
		Depths: NewDepths(prometheus.NewRegistry()), Report: func([]Finding) {},
	})
	s, p := session(t, brokertest.URL(t)), build(t, topology.Options{Service: "wms-cincout"})
	s.Kill()
	if err := w.Watch(context.Background(), s, func() *topology.Plan { return p }); err == nil {
		t.Error("a lost session is not a reason to end well")
	}
	if w.o.Every != DefaultEvery {
		t.Errorf("checks every %v", w.o.Every)
	}
}

func gauges(t testing.TB, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families := must.Get(r.Gather())(t)
	got := map[string]float64{}
	for _, f := range families {
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

// depthsOf is one check of a Watcher.
func depthsOf(ctx context.Context, s Session, p *topology.Plan) ([]Depth, []Finding, error) {
	e := newEnsurer(s, p, topology.ModeVerify)
	defer e.close(ctx)
	return e.measure(ctx)
}
