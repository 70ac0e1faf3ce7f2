package declare

import (
	"context"
	"maps"
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
	url, p := declared(t, topology.Options{Service: "wms-cincout", RetryDelay: time.Hour})
	ch := channel(t, url)
	brokertest.Publish(t, ch, p.Waits[0].Exchange, p.Waits[0].Key, amqp.Publishing{})
	brokertest.Send(t, url, p.Queue, "x", "y")
	registry := prometheus.NewRegistry()
	reports := make(chan []Finding)
	w := NewWatcher(WatchOptions{
		Every: 10 * time.Millisecond, Depths: NewDepths(registry),
		Report: func(f []Finding) { reports <- f },
	})
	cancel, ended := watch(t, w, url, p)

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
	must.Do(t, last(reports, ended))
	if got := gauges(t, registry); len(got) != 0 {
		t.Errorf("old depths are still shown: %v", got)
	}
}

// watch runs a watcher on a session of its own until cancel is called.
func watch(t *testing.T, w *Watcher, url string, p *topology.Plan) (cancel context.CancelFunc, ended <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, result := session(t, url), make(chan error, 1)
	go func() { result <- w.Watch(ctx, s, func() *topology.Plan { return p }) }()
	return cancel, result
}

// last returns how a watcher that was cancelled ended. It may be in a report.
func last[T any](reports <-chan T, ended <-chan error) error {
	for {
		select {
		case <-reports:
		case err := <-ended:
			return err
		}
	}
}

// lost is a consumer of this process, as the watcher sees it.
type lost struct{ times atomic.Int32 }

func (l *lost) Lost() { l.times.Add(1) }

// TestQueueWithoutAConsumer: this process takes itself for a consumer, and the broker has none. It counts when messages
// wait, and a later check finds the same for the same consumer.
func TestQueueWithoutAConsumer(t *testing.T) {
	t.Parallel()
	url, p := declared(t, topology.Options{Service: "wms-cincout"})
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
	cancel, ended := watch(t, w, url, p)
	look := func() {
		t.Helper()
		for range 5 {
			select {
			case <-checks:
			case err := <-ended:
				t.Fatalf("the watcher ended: %v", err)
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
	must.Do(t, last(checks, ended))
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
	url, p := declared(t, topology.Options{Service: "wms-cincout"})
	ask, looked := make(chan struct{}), make(chan struct{})
	w := NewWatcher(WatchOptions{
		Every: time.Hour, Ask: ask, Depths: NewDepths(prometheus.NewRegistry()),
		Report: func([]Finding) { looked <- struct{}{} },
	})
	if d := w.depths(); d != nil {
		t.Errorf("there is no watcher, and yet: %v", d)
	}
	cancel, ended := watch(t, w, url, p)
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

// TestDepthsOfSeveralWatchers: a queue that two plans have is one series, of the first plan that is watched.
func TestDepthsOfSeveralWatchers(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	all := NewDepths(registry)
	var watchers [2]*Watcher
	for i, queue := range []string{"first", "second"} {
		watchers[i] = NewWatcher(WatchOptions{Depths: all})
		watchers[i].last.Store(&[]Depth{{queue, queue, topology.KindMain, 1}, {"dlq", queue, topology.KindDLQ, 3}})
	}
	for _, want := range []map[string]float64{
		{"first main of first": 1, "second main of second": 1, "dlq dlq of first": 3}, {"second main of second": 1, "dlq dlq of second": 3}, {},
	} {
		if got := gauges(t, registry); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		for _, w := range watchers {
			if w.last.Swap(nil) != nil {
				break
			}
		}
	}
}
