package app

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/deadletter"
	"sidecar/internal/testkit/must"
)

// TestPartitionsInStatus: they have one concurrency together, a warning is shown once, and queues of another number of
// partitions are searched for once in a session.
func TestPartitionsInStatus(t *testing.T) {
	t.Parallel()
	a := fresh(t, live(t, "SIDECAR_ORDER_BY=header:customer", "SIDECAR_PARTITIONS=3", "SIDECAR_CONCURRENCY=3", "SIDECAR_QUEUE_TYPE=classic"))
	ch, link := brokertest.Channel(t, brokertest.URL(t)), must.Get(a.dialer.Dial(t.Context()))(t)
	defer link.Close()
	left, s := brokertest.Queue(t, brokertest.URL(t), "demo.queue.demo-orders.p3", nil), a.subscriptions[0]
	brokertest.Queue(t, brokertest.URL(t), "demo.dlq.demo-orders", amqp.Table{"x-max-length": int64(9000)}) // a warning of each
	leftover := func(when string, want bool) {
		t.Helper()
		for _, s := range a.subscriptions {
			must.Do(t, s.ensure(t.Context(), link))
		}
		if strings.Contains(fmt.Sprint(a.Status().Warnings), left) != want {
			t.Errorf("%s: %q", when, a.Status().Warnings)
		}
	}
	leftover("first check", true)
	st := a.Status()
	for _, all := range [][]string{st.Warnings, a.consumption(a.subscriptions).Warnings} {
		if once := slices.Compact(slices.Sorted(slices.Values(all))); len(once) != len(all) || len(all) != 2 {
			t.Errorf("warnings %q", all)
		}
	}
	if st.Concurrency != 3 || st.Prefetch != 3*s.cfg.Window.Prefetch {
		t.Errorf("concurrency %d, prefetch %d", st.Concurrency, st.Prefetch)
	}
	must.Get(ch.QueueDelete(left, false, false, false))(t)
	s.session.Store(link)
	leftover("second check", true) // it is not searched for again
	s.session.Store(nil)
	leftover("next session", false)
}

// TestPartitions: messages of one key are POSTed in order from one partition, also while a second replica comes and the
// first one goes. All partitions of a replica keep the concurrency together. A parked message is redriven into its
// partition.
func TestPartitions(t *testing.T) {
	t.Parallel()
	const keys, each, parked, failed = 16, 3, "3-1", "5-2"
	app := apptest.NewApp(t)
	var open, peak atomic.Int64
	three, done := context.WithTimeout(t.Context(), time.Minute) // ends when so many are open at once
	defer done()
	app.Otherwise(func(*apptest.Request) apptest.Reply {
		n := open.Add(1)
		if peak.Store(max(peak.Load(), n)); n == 3 {
			done()
		}
		return func(c *apptest.Conn) bool {
			<-three.Done()
			time.Sleep(2 * time.Millisecond) // so that a fourth one would show
			open.Add(-1)
			return c.Send(apptest.Status(200))
		}
	})
	app.On(parked, apptest.Say(apptest.Status(422)), apptest.Say(apptest.Status(200)))
	app.On(failed, apptest.Say(apptest.Status(503)), apptest.Say(apptest.Status(200)))
	cfg := live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_ORDER_BY=header:customer", "SIDECAR_PARTITIONS=4", "SIDECAR_CONCURRENCY=3",
		"SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_PARK_ON_STATUS=422", "SIDECAR_RETRY_DELAY=100ms")
	a, _, stop := run(t, cfg)
	ready := func(a *App) {
		brokertest.Eventually(t, time.Minute, "all partitions are consumed", func() bool { return a.Ready("").Ready })
	}
	ready(a)
	ch, sent := brokertest.Channel(t, brokertest.URL(t)), 0
	publish := func() {
		for n := sent; n < sent+each; n++ {
			for k := range keys {
				m := withID(fmt.Sprintf("%d-%d", k, n))
				m.Headers = amqp.Table{"customer": fmt.Sprint(k)}
				brokertest.Publish(t, ch, "demo.main-exchange", "", m)
			}
		}
		sent += each
	}
	attempted := func(extra int) {
		t.Helper()
		brokertest.Eventually(t, time.Minute, "every message is POSTed", func() bool { return len(app.Requests()) >= keys*sent+extra })
	}
	publish()
	attempted(1) // and the retry
	if n := peak.Load(); n != 3 {
		t.Errorf("%d POSTs at once by all partitions, want 3", n)
	}
	second, _, _ := run(t, cfg)
	ready(second)
	publish()
	must.Do(t, stop())
	publish()
	attempted(1)

	dead := must.Get(must.Get(DeadLetters(cfg, Build{}, "test"))(t).Only())(t)
	if p := must.Get(dead.Redrive(t.Context(), deadletter.Redrive{Reset: true}, func(deadletter.Progress) {}))(t); p.Done != 1 {
		t.Errorf("redriven: %+v", p)
	}
	attempted(2)
	next, queues := map[string]int{}, map[string]string{}
	for _, r := range app.Requests() {
		key, number, _ := strings.Cut(r.ID, "-")
		if r.Nth == 1 && number != fmt.Sprint(next[key]) {
			t.Errorf("%s came when %d was next", r.ID, next[key])
		}
		if r.Nth == 1 {
			next[key]++
		}
		if q := r.Header.Get("Amqp-Queue"); queues[key] == "" {
			queues[key] = q
		} else if queues[key] != q {
			t.Errorf("%s came from %s, want %s", r.ID, q, queues[key])
		}
	}
	used := slices.Compact(slices.Sorted(maps.Values(queues)))
	if len(used) != 4 || len(second.Flow().Depths) != 5 {
		t.Errorf("used %v of %+v", used, second.Flow().Depths)
	}
	if got := app.Seen(parked); len(got) != 2 || got[1].Header.Get("Amqp-Exchange") != "demo.main-exchange" {
		t.Errorf("the redriven message: %d requests", len(got))
	}
}

// TestAFailingKey: more of its messages wait than the window of a queue without order holds, and another key goes on.
func TestAFailingKey(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("failing-0", apptest.Say(apptest.Status(503)))
	a, _, _ := run(t, live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_ORDER_BY=header:customer", "SIDECAR_RETRY_DELAY=10m"))
	brokertest.Eventually(t, time.Minute, "ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, brokertest.URL(t))
	for i := range 90 {
		key := map[bool]string{true: "failing", false: "other"}[i < 60]
		m := withID(fmt.Sprintf("%s-%d", key, i))
		m.Headers = amqp.Table{"customer": key}
		brokertest.Publish(t, ch, "demo.main-exchange", "", m)
	}
	brokertest.Eventually(t, time.Minute, "the other key's messages are POSTed", func() bool { return len(app.Seen("other-89")) == 1 })
	if n := len(app.Requests()); n != 31 {
		t.Errorf("%d requests, want 1 of the failing key and 30 of the other", n)
	}
}
