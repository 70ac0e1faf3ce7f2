package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sidecar/internal/admin"
	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
)

// TestNamedSubscriptions: readiness, status and pauses are of each subscription, and of all.
func TestNamedSubscriptions(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	a, _, _ := run(t, live(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_APP_URL="+app.URL, "SIDECAR_SUB_REFUNDS_CONCURRENCY=2",
		"SIDECAR_SUB_REFUNDS_PREFETCH=3", "SIDECAR_SUB_REFUNDS_MAX_RETRIES=12", "SIDECAR_SUB_REFUNDS_BATCH_SIZE=4"))
	brokertest.Eventually(t, time.Minute, "all are ready", func() bool { return a.Ready("").Ready })
	names := func(r admin.Readiness) (all []string) {
		for _, c := range r.Checks {
			all = append(all, strings.TrimSuffix(c.Name+" "+c.Subscription, " "))
		}
		return all
	}
	if got, want := names(a.Ready("")), []string{
		"broker", "topology orders", "consuming orders", "publishing orders", "topology refunds", "consuming refunds",
		"publishing refunds", "not_draining", "app orders", "app refunds",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if got, want := names(a.Ready("refunds")), []string{
		"broker", "topology refunds", "consuming refunds", "publishing refunds", "not_draining", "app refunds",
	}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}

	a.Pause("orders")
	st := a.Status()
	if len(st.Subscriptions) != 2 || st.State != admin.Consuming || len(st.Pauses) != 1 || st.Concurrency != 18 || st.Prefetch != 23 ||
		st.MaxRetries != 10 || !slices.Equal(st.RetryDelays, []string{"5s"}) || st.App.URL != app.URL ||
		st.Queue != "demo.queue.demo-orders.orders, demo.queue.demo-orders.refunds" {
		t.Fatalf("%+v", st)
	}
	if p := st.Pauses[0]; p.Subscription != "orders" || p.Queue != "demo.queue.demo-orders.orders" || p.Reason != "operator" {
		t.Errorf("%+v", p)
	}
	orders, refunds := st.Subscriptions[0], st.Subscriptions[1]
	if orders.Name != "orders" || orders.State != admin.Paused || orders.Concurrency != 10 || orders.MaxRetries != 10 || len(orders.Pauses) != 1 {
		t.Errorf("%+v", orders)
	}
	if refunds.State != admin.Consuming || refunds.Queue != "demo.queue.demo-orders.refunds" || refunds.MaxRetries != 12 || len(refunds.Pauses) != 0 {
		t.Errorf("%+v", refunds)
	}
	a.Pause("")
	a.Resume("orders")
	if all := a.Status().Pauses; len(all) != 1 || all[0].Subscription != "refunds" {
		t.Errorf("all paused, orders resumed: %+v", all)
	}
	a.Resume("")
	if all := a.Status().Pauses; len(all) != 0 {
		t.Errorf("all resumed: %+v", all)
	}
}

// TestWaiting: what a queue delays itself is known to who rejected it, and counted over the subscriptions that have such
// a queue. Nothing pretends to know it of others.
func TestWaiting(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	app.On("", apptest.Say(apptest.Status(500)))
	a, log, _ := run(t, live(t, "SIDECAR_SUBSCRIPTIONS=one,two,other", "SIDECAR_APP_URL="+app.URL+"/", "SIDECAR_RETRY_DELAY=1h",
		"SIDECAR_SUB_ONE_TOPOLOGY=native", "SIDECAR_SUB_TWO_TOPOLOGY=native", "SIDECAR_QUEUE_TYPE=quorum"))
	waiting, old := []int{2, 1}, strings.HasPrefix(brokertest.Version(t), "3.") || strings.HasPrefix(brokertest.Version(t), "4.0.")
	if old {
		waiting = []int{0, 0}
		brokertest.Eventually(t, time.Minute, "the broker is too old", func() bool { return len(a.Status().Findings) == 2 })
	} else {
		brokertest.Eventually(t, time.Minute, "all are ready", func() bool { return a.Ready("").Ready })
		brokertest.Send(t, brokertest.URL(t), a.subscriptions[0].plan.Queue, "m", "n")
		brokertest.Send(t, brokertest.URL(t), a.subscriptions[1].plan.Queue, "m")
		brokertest.Eventually(t, time.Minute, "all are rejected", func() bool { return strings.Count(log.String(), `"outcome":"retry"`) == 3 })
	}
	st := a.Status()
	if st.Waiting == nil || *st.Waiting != waiting[0]+waiting[1] || st.Subscriptions[2].Waiting != nil {
		t.Errorf("in all %v, where the queue delays nothing %v", st.Waiting, st.Subscriptions[2].Waiting)
	}
	for i, want := range waiting {
		sub := &st.Subscriptions[i]
		metric := brokertest.Metric(t, a.registry, "sidecar_waiting_messages", "queue", sub.Queue)
		if sub.Waiting == nil || *sub.Waiting != want || metric != float64(want) {
			t.Errorf("%s: %v wait, the metric says %v, want %d", sub.Name, sub.Waiting, metric, want)
		}
	}
	if n := must.Get(testutil.GatherAndCount(a.registry, "sidecar_waiting_messages"))(t); n != 2 {
		t.Errorf("%d series", n)
	}
}
