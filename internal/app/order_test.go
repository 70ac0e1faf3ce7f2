package app

import (
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

// TestOrderBy: by configuration alone a failed message is tried again in its place, in a queue with a single active
// consumer, and nothing passes a retry queue.
func TestOrderBy(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	cfg := live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_ORDER_BY=routing-key", "SIDECAR_RETRY_DELAY=100ms")
	app.On("a1", apptest.Say(apptest.Status(503)), apptest.Say(apptest.Status(503)), apptest.Say(apptest.Status(200)))
	a, _, stop := run(t, cfg)
	brokertest.Eventually(t, time.Minute, "it is ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, brokertest.URL(t))
	for _, id := range []string{"a1", "a2", "b1", "a3", "b2"} {
		brokertest.Publish(t, ch, "demo.main-exchange", id[:1], withID(id))
	}
	settled := func(outcome string) float64 {
		return brokertest.Metric(t, a.registry, "sidecar_messages_settled_total", "outcome", outcome)
	}
	brokertest.Eventually(t, time.Minute, "all are acked", func() bool { return settled("ack") == 5 })
	if n := settled("retry"); n != 2 {
		t.Errorf("%v retries, want 2", n)
	}
	if seen := app.Seen("a1"); len(seen) != 3 || seen[2].Header.Get("Amqp-Delivery-Attempt") != "3" {
		t.Errorf("%d attempts of a1", len(seen))
	}
	if n := brokertest.Ready(t, brokertest.URL(t), "demo.retry-queue.demo-orders"); n != 0 {
		t.Errorf("%d messages in the retry queue", n)
	}
	q := a.plan.OwnQueue()
	if !a.plan.InPlace || q.Args[topology.ArgSingleConsumer] != true {
		t.Errorf("in place %v, arguments %v", a.plan.InPlace, q.Args)
	}
	must.Do(t, stop())
}

// TestOrderScope: order within each replica needs no single active consumer.
func TestOrderScope(t *testing.T) {
	t.Parallel()
	p := must.Get(newPlan(load(t, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")))(t)
	if q := p.OwnQueue(); !p.InPlace || p.SingleActive || q.Args[topology.ArgSingleConsumer] != nil {
		t.Errorf("in place %v, single active %v, arguments %v", p.InPlace, p.SingleActive, q.Args)
	}
}

// TestOrderWithAPlanFile: the queue of the file must have a single active consumer, too.
func TestOrderWithAPlanFile(t *testing.T) {
	t.Parallel()
	file := planFile(t, load(t), nil)
	refused(t, "SIDECAR_ORDER_BY needs x-single-active-consumer=true", "SIDECAR_PLAN_FILE", file, "SIDECAR_ORDER_BY=queue")
	load(t, file, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")
}
