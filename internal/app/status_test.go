package app

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"sidecar/internal/admin"
	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/dispatch"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
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

// TestOneProbeForEachApp: subscriptions whose app is the same, whatever their paths, share a probe. It asks once while
// its answer is fresh, and an interrupted question is no answer.
func TestOneProbeForEachApp(t *testing.T) {
	t.Parallel()
	all := probes{}
	asked := 0
	away := errors.New("away")
	ask := func(context.Context) error { asked++; return away }
	of := func(url, path string) *probe {
		target := must.Get(dispatch.New(dispatch.Options{URL: url}))(t)
		return all.of(&config.App{URL: url, HealthPath: path, HealthInterval: time.Hour}, target.Origin(), ask)
	}
	p := of("http://127.0.0.1:8080/orders", "")
	if of("http://127.0.0.1:8080/refunds?x=1", "") != p {
		t.Error("two paths of one app have two probes")
	}
	for _, other := range []*probe{
		of("http://127.0.0.1:8081/orders", ""), of("https://127.0.0.1:8080/orders", ""),
		of("http://127.0.0.1:8080/orders", "/health"), of("unix:///run/a.sock:/orders", ""),
	} {
		if other == p {
			t.Error("two apps share a probe")
		}
	}
	if of("unix:///run/a.sock:/orders", "") != of("unix:///run/a.sock:/refunds", "") {
		t.Error("two paths of one socket have two probes")
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := p.run(ended); !errors.Is(err, away) || asked != 1 {
		t.Errorf("%v, asked %d times", err, asked)
	}
	for range 3 {
		if err := p.run(t.Context()); !errors.Is(err, away) {
			t.Error(err)
		}
	}
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

func TestPicture(t *testing.T) {
	t.Parallel()
	plan := must.Get(newPlan(load(t, "SIDECAR_SERVICE=wms-cincout")))(t)
	want := `{"subscription":"orders","preset":"fanout","service":"wms-cincout","queue":"wms.queue.wms-cincout",` +
		`"exchanges":[{"name":"wms.main-exchange","type":"fanout","shared":true},{"name":"wms.retry-exchange.wms-cincout","type":"direct"}],` +
		`"queues":[{"name":"wms.dlq.wms-cincout","kind":"dlq"},` +
		`{"name":"wms.retry-queue.wms-cincout","kind":"retry","arguments":{` +
		`"x-dead-letter-exchange":"","x-dead-letter-routing-key":"wms.queue.wms-cincout","x-message-ttl":5000}},` +
		`{"name":"wms.queue.wms-cincout","kind":"main","arguments":{` +
		`"x-dead-letter-exchange":"wms.retry-exchange.wms-cincout","x-dead-letter-routing-key":"retry"}}],` +
		`"bindings":[{"exchange":"wms.main-exchange","queue":"wms.queue.wms-cincout"},` +
		`{"exchange":"wms.retry-exchange.wms-cincout","key":"retry","queue":"wms.retry-queue.wms-cincout"}],` +
		`"waits":[{"exchange":"wms.retry-exchange.wms-cincout","key":"retry","queue":"wms.retry-queue.wms-cincout","delay":"5s"}],` +
		`"park":{"exchange":"","key":"wms.dlq.wms-cincout","queue":"wms.dlq.wms-cincout"},` +
		`"redrive":{"exchange":"","key":"wms.queue.wms-cincout","queue":"wms.queue.wms-cincout"}}`
	if got := string(must.Get(json.Marshal(topologyView("orders", plan)))(t)); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

func TestWithoutADeadLetterQueue(t *testing.T) {
	t.Parallel()
	cfg := load(t, "SIDECAR_TOPOLOGY=dead-letter", "SIDECAR_DEAD_LETTER=disabled", "SIDECAR_QUEUE=orders", "SIDECAR_EXCHANGE=amq.topic", "SIDECAR_BINDINGS=amq.topic:orders.#")
	a := fresh(t, cfg)
	if p := topologyView("", a.plan); p.Park != (topology.Route{}) || p.Redrive != p.Park || p.Waits == nil {
		t.Errorf("%+v", p)
	}
	if n := must.Get(testutil.GatherAndCount(a.registry, "sidecar_redriven_total"))(t); n != 2 { // alerts need both results
		t.Errorf("%d series", n)
	}
	if _, err := DeadLetters(cfg, Build{}, "operator"); !errors.Is(err, ErrConfig) || !errors.Is(err, deadletter.ErrNoQueue) {
		t.Errorf("%v", err)
	}
}

// TestHealthURLHasNoQuery: the log and /status show it, and a query may hold a token.
func TestHealthURLHasNoQuery(t *testing.T) {
	t.Parallel()
	a := fresh(t, load(t, "SIDECAR_APP_URL=http://127.0.0.1:1/x?key=canary", "SIDECAR_APP_HEALTH_PATH=/h?token=canary"))
	if got := a.subscriptions[0].healthURL(); got != "http://127.0.0.1:1/h" {
		t.Error(got)
	}
}

// TestWaiting: what a queue delays itself is known to who rejected it, and counted over the subscriptions that have such
// a queue. Nothing pretends to know it of others.
func TestWaiting(t *testing.T) {
	t.Parallel()
	brokertest.Delaying(t)
	app := apptest.NewApp(t)
	app.On("", apptest.Say(apptest.Status(500)))
	a, log, _ := run(t, live(t, "SIDECAR_SUBSCRIPTIONS=one,two,other", "SIDECAR_APP_URL="+app.URL+"/", "SIDECAR_RETRY_DELAY=1h",
		"SIDECAR_SUB_ONE_TOPOLOGY=native", "SIDECAR_SUB_TWO_TOPOLOGY=native", "SIDECAR_QUEUE_TYPE=quorum"))
	brokertest.Eventually(t, time.Minute, "all are ready", func() bool { return a.Ready("").Ready })
	brokertest.Send(t, brokertest.URL(t), a.subscriptions[0].plan.Queue, "m", "n")
	brokertest.Send(t, brokertest.URL(t), a.subscriptions[1].plan.Queue, "m")
	brokertest.Eventually(t, time.Minute, "all are rejected", func() bool { return strings.Count(log.String(), `"outcome":"retry"`) == 3 })
	st := a.Status()
	if st.Waiting == nil || *st.Waiting != 3 || st.Subscriptions[2].Waiting != nil {
		t.Errorf("in all %v, where the queue delays nothing %v", st.Waiting, st.Subscriptions[2].Waiting)
	}
	for i, want := range []int{2, 1} {
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
