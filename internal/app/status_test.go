package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/admin"
	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// named builds a sidecar with the subscriptions orders, of two queues, and refunds. It does not run.
func named(t *testing.T, env ...string) (*App, *apptest.Log) {
	t.Helper()
	first := live(t, env...)
	second := live(t, append(env, "SIDECAR_SERVICE=demo-more", "SIDECAR_CONCURRENCY=2", "SIDECAR_PREFETCH=3")...)
	third := live(t, append(env, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_MAX_RETRIES=12", "SIDECAR_RETRY_DELAY=7s")...)
	first.Subscription, second.Subscription, third.Subscription = "orders", "orders", "refunds"
	log := &apptest.Log{}
	return must.Get(newApp(first, []*config.Config{first, second, third}, Build{}, log))(t), log
}

// TestNamedSubscriptions: readiness, status and pauses are of each subscription, and of all.
func TestNamedSubscriptions(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	a, log := named(t, "SIDECAR_APP_URL="+app.URL)
	serve(t, a, log)
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
	if len(st.Subscriptions) != 2 || st.State != admin.Consuming || len(st.Pauses) != 2 || st.Concurrency != 22 || st.Prefetch != 43 ||
		st.MaxRetries != 10 || !slices.Equal(st.RetryDelays, []string{"5s"}) || st.App.URL != app.URL ||
		st.Queue != "demo.queue.demo-orders, demo.queue.demo-more, demo.queue.demo-refunds" {
		t.Fatalf("%+v", st)
	}
	if p := st.Pauses[1]; p.Subscription != "orders" || p.Queue != "demo.queue.demo-more" || p.Reason != "operator" {
		t.Errorf("%+v", p)
	}
	orders, refunds := st.Subscriptions[0], st.Subscriptions[1]
	if orders.Name != "orders" || orders.State != admin.Paused || orders.Concurrency != 12 || orders.MaxRetries != 10 || len(orders.Pauses) != 2 {
		t.Errorf("%+v", orders)
	}
	if refunds.State != admin.Consuming || refunds.Queue != "demo.queue.demo-refunds" || refunds.MaxRetries != 12 || len(refunds.Pauses) != 0 {
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
	url := "SIDECAR_APP_URL=" + apptest.NewApp(t).URL
	orders, refunds := live(t, url), live(t, url, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_TOPOLOGY_MODE=verify")
	orders.Subscription, refunds.Subscription = "orders", "refunds"
	log := &apptest.Log{}
	a := must.Get(newApp(orders, []*config.Config{orders, refunds}, Build{}, log))(t)
	serve(t, a, log)
	brokertest.Eventually(t, 20*time.Second, "one is ready", func() bool { return a.Ready("orders").Ready })
	brokertest.Eventually(t, 20*time.Second, "the other is checked", func() bool { return len(a.Status().Subscriptions[1].Findings) > 0 })
	if a.Ready("refunds").Ready || a.Ready("").Ready {
		t.Error("ready without its queue")
	}
	st := a.Status()
	if f := st.Findings[0]; f.Subscription != "refunds" || f.Queue != "demo.queue.demo-refunds" || !st.Consume.Connected || st.State != admin.Consuming {
		t.Errorf("%+v", st)
	}
	if of := st.Subscriptions[0]; len(of.Findings) != 0 || of.State != admin.Consuming {
		t.Errorf("%+v", of)
	}
	if of := st.Subscriptions[1]; of.State == admin.Consuming {
		t.Errorf("%+v", of)
	}
}
