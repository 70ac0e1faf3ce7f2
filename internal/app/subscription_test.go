package app

import (
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/testkit/must"
)

// TestTwoSubscriptions: two subscriptions of one sidecar consume beside each other. What happens to one shows under
// its queue and leaves the other alone; one drain ends both.
func TestTwoSubscriptions(t *testing.T) {
	t.Parallel()
	orders, refunds := apptest.NewApp(t), apptest.NewApp(t)
	first := live(t, "SIDECAR_APP_URL="+orders.URL)
	second := live(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_APP_URL="+refunds.URL, "SIDECAR_PARK_ON_STATUS=422")
	refunds.On("bad", apptest.Say(apptest.Status(422)))
	log := &apptest.Log{}
	a := must.Get(newApp(first, []*config.Config{first, second}, Build{}, log))(t)
	stop := serve(t, a, log)
	brokertest.Eventually(t, 20*time.Second, "both are ready", func() bool { return a.Ready().Ready })

	queues := []string{"demo.queue.demo-orders", "demo.queue.demo-refunds"}
	ch := brokertest.Channel(t, brokertest.URL(t))
	send := func(queue, id string) { t.Helper(); brokertest.Publish(t, ch, "", queue, withID(id)) }
	settled := func(queue, outcome string) float64 {
		return brokertest.Metric(t, a.registry, "sidecar_messages_settled_total", "queue", queue, "outcome", outcome)
	}
	send(queues[0], "good")
	send(queues[1], "bad")
	brokertest.Eventually(t, 20*time.Second, "each message settled as its app answered", func() bool {
		return settled(queues[0], "ack") == 1 && settled(queues[1], "park") == 1
	})
	if n := len(orders.Seen("bad")) + len(refunds.Seen("good")); n != 0 {
		t.Errorf("%d messages were POSTed to the app of the other queue", n)
	}
	brokertest.WaitReady(t, brokertest.URL(t), "demo.dlq.demo-refunds", 1)
	for _, name := range []string{"sidecar_consumer_active", "sidecar_app_up", "sidecar_max_retries"} {
		for _, queue := range queues {
			if brokertest.Metric(t, a.registry, name, "queue", queue) == 0 {
				t.Errorf("no %s of %s", name, queue)
			}
		}
	}

	refunds.Shut()
	brokertest.Eventually(t, 20*time.Second, "one app is missed", func() bool { return !a.subscriptions[1].flow.AppUp() })
	send(queues[1], "waits")
	send(queues[0], "goes on")
	brokertest.Eventually(t, 20*time.Second, "the other goes on", func() bool { return settled(queues[0], "ack") == 2 })
	if st := a.Status(); len(st.Pauses) != 1 || st.App.Up || !a.Ready().Ready {
		t.Errorf("%+v", st)
	}
	a.Pause()
	if st := a.Status(); len(st.Pauses) != 3 { // the operator's of both, and the app's
		t.Errorf("pauses %+v", st.Pauses)
	}
	a.Drain()
	<-a.Drained()
	if slices.ContainsFunc(a.subscriptions, func(s *subscription) bool { return s.consumer.Active() }) {
		t.Error("drained, and a consumer is still there")
	}
	if err := stop(); err != nil || strings.Count(log.String(), `"msg":"drained"`) != 2 {
		t.Errorf("Run: %v", err)
	}
	if n := brokertest.Ready(t, brokertest.URL(t), queues[1]); n != 1 {
		t.Errorf("%d messages wait for the app that is down", n)
	}
}
