package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// TestNamedSubscriptions: readiness, status and pauses are of each subscription, and of all.
func TestNamedSubscriptions(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	a, _, _ := run(t, live(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_APP_URL="+app.URL, "SIDECAR_SUB_REFUNDS_CONCURRENCY=2",
		"SIDECAR_SUB_REFUNDS_PREFETCH=3", "SIDECAR_SUB_REFUNDS_MAX_RETRIES=12"))
	brokertest.Eventually(t, 20*time.Second, "all are ready", func() bool { return a.Ready("").Ready })
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
	if len(st.Subscriptions) != 2 || st.State != admin.Consuming || len(st.Pauses) != 1 || st.Concurrency != 12 || st.Prefetch != 23 ||
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
	a.Resume("orders")
	if st := a.Status(); len(st.Pauses) != 0 {
		t.Errorf("%+v", st.Pauses)
	}
}

// TestUnreadySubscription: a subscription whose queue is missing is not ready, and no other one is affected.
func TestUnreadySubscription(t *testing.T) {
	t.Parallel()
	cfg := live(t, "SIDECAR_SUBSCRIPTIONS=orders,refunds", "SIDECAR_APP_URL="+apptest.NewApp(t).URL,
		"SIDECAR_SUB_REFUNDS_TOPOLOGY_MODE=verify")
	declared(t, cfg.Subscriptions[0]) // with the exchange of both
	a, _, _ := run(t, cfg)
	brokertest.Eventually(t, 20*time.Second, "one is ready", func() bool { return a.Ready("orders").Ready })
	brokertest.Eventually(t, 20*time.Second, "the other is checked", func() bool { return len(a.Status().Subscriptions[1].Findings) > 0 })
	if a.Ready("refunds").Ready || a.Ready("").Ready {
		t.Error("ready without its queue")
	}
	st := a.Status()
	if f := st.Findings[0]; f.Subscription != "refunds" || f.Queue != "demo.queue.demo-orders.refunds" || !st.Consume.Connected || st.State != admin.Consuming {
		t.Errorf("%+v", st)
	}
	if of := st.Subscriptions[0]; len(of.Findings) != 0 || of.State != admin.Consuming {
		t.Errorf("%+v", of)
	}
	if of := st.Subscriptions[1]; of.State == admin.Consuming {
		t.Errorf("%+v", of)
	}
}
