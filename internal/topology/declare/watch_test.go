package declare

import (
	"context"
	"reflect"
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

// TestWatch: a deleted queue or exchange is noticed while the sidecar runs, and so is its return.
func TestWatch(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Hour})
	fits(t, url, p, topology.ModeDeclare)
	ch := channel(t, url)
	brokertest.Publish(t, ch, p.Waits[0].Exchange, p.Waits[0].Key, amqp.Publishing{})
	brokertest.Send(t, url, p.Queue, "x", "y")
	registry := prometheus.NewRegistry()
	reports := make(chan []Finding)
	w := NewWatcher(WatchOptions{
		Every: 10 * time.Millisecond, Depths: NewDepths(registry),
		Report: func(f []Finding) { reports <- f },
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	s := session(t, url)
	go func() { ended <- w.Watch(ctx, s, func() *topology.Plan { return p }) }()

	if f := <-reports; f != nil {
		t.Errorf("all is there, but %v", f)
	}
	if got := gauges(t, registry); !reflect.DeepEqual(got, map[string]float64{
		"wms.dlq.wms-cincout dlq of " + p.Queue: 0, "wms.retry-queue.wms-cincout retry of " + p.Queue: 1,
		"wms.queue.wms-cincout main of " + p.Queue: 2,
	}) {
		t.Errorf("metrics %v", got)
	}
	must.Get(ch.QueueDelete(p.Waits[0].Queue, false, false, false))(t)
	must.Do(t, ch.ExchangeDelete(p.Waits[0].Exchange, false, false))
	for f := range reports {
		if len(f) == 2 && f[0].Object == topology.ExchangeTitle(p.Waits[0].Exchange) && f[1].Object == topology.QueueTitle(p.Waits[0].Queue) {
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

// lost is a consumer of this process, as the watcher sees it.
type lost struct{ times atomic.Int32 }

func (l *lost) Lost() { l.times.Add(1) }

// TestQueueWithoutAConsumer: this process takes itself for a consumer, and the broker has none. It counts when messages
// wait, and a later check finds the same for the same consumer.
func TestQueueWithoutAConsumer(t *testing.T) {
	t.Parallel()
	url := brokertest.URL(t)
	p := build(t, topology.Options{Service: "wms-cincout"})
	fits(t, url, p, topology.ModeDeclare)
	var registered atomic.Pointer[lost]
	var other atomic.Bool // another consumer at each question
	ours := func() Consumer {
		switch l := registered.Load(); {
		case other.Load():
			return new(lost)
		case l != nil:
			return l
		}
		return nil
	}
	checks := make(chan struct{})
	w := NewWatcher(WatchOptions{
		Every: 10 * time.Millisecond, Depths: NewDepths(prometheus.NewRegistry()), Registered: ours,
		Report: func([]Finding) { checks <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	s := session(t, url)
	go func() { defer close(checks); ended <- w.Watch(ctx, s, func() *topology.Plan { return p }) }()
	look := func() {
		t.Helper()
		for range 5 {
			if _, running := <-checks; !running {
				t.Fatalf("the watcher ended: %v", <-ended)
			}
		}
	}
	consumer := new(lost)
	found := func(what string) {
		t.Helper()
		look()
		if n := consumer.times.Load(); n != 0 {
			t.Errorf("%s: lost %d times", what, n)
		}
	}
	ch := channel(t, url)
	registered.Store(consumer)
	found("the queue is empty")
	must.Do(t, ch.Qos(1, 0, false))
	must.Get(ch.Consume(p.Queue, "another", false, false, false, false, nil))(t)
	for range 3 {
		brokertest.Publish(t, ch, "", p.Queue, amqp.Publishing{})
	}
	found("another consumer that does not settle")
	other.Store(true)
	look()
	must.Do(t, ch.Cancel("another", false))
	found("no consumer stays")
	registered.Store(nil)
	other.Store(false)
	found("this process has no consumer")
	registered.Store(consumer)
	for end := time.Now().Add(soon); consumer.times.Load() == 0; look() {
		if time.Now().After(end) {
			t.Fatal("not lost")
		}
	}
	cancel()
	for range checks { // it may be in a report
	}
	if err := <-ended; err != nil {
		t.Errorf("the session ended: %v", err)
	}
}

// TestLostLater: a check right behind another one says nothing more, and what a consumer had begins anew with the next.
func TestLostLater(t *testing.T) {
	t.Parallel()
	var u unconsumed
	a, b, start := new(lost), new(lost), time.Now()
	for _, step := range []struct {
		consumer Consumer
		after    time.Duration
		a, b     int32
	}{
		{a, 0, 0, 0}, {a, 4, 0, 0}, {nil, 5, 0, 0}, {a, 6, 0, 0}, {b, 12, 0, 0}, {b, 16, 0, 0}, {b, 17, 0, 1}, {a, 30, 0, 1}, {a, 36, 1, 1},
	} {
		u.see(step.consumer, start.Add(step.after*time.Second), 5*time.Second)
		if a.times.Load() != step.a || b.times.Load() != step.b {
			t.Errorf("after %d s: lost %d and %d times, want %d and %d", step.after, a.times.Load(), b.times.Load(), step.a, step.b)
		}
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
	s := session(t, url)
	go func() { ended <- w.Watch(ctx, s, func() *topology.Plan { return p }) }()
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
