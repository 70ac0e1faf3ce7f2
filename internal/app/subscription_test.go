package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/config"
	"sidecar/internal/message"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology/declare"
)

// together is the configuration of one sidecar for several, with the process of the first.
func together(all ...*config.Config) *config.Config {
	cfg := *all[0]
	cfg.Subscriptions = all
	return &cfg
}

// TestTwoSubscriptions: two subscriptions of one sidecar consume beside each other. What happens to one shows under
// its queue and leaves the other alone; one drain ends both.
func TestTwoSubscriptions(t *testing.T) {
	t.Parallel()
	orders, refunds := apptest.NewApp(t), apptest.NewApp(t)
	first := live(t, "SIDECAR_APP_URL="+orders.URL)
	second := live(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_APP_URL="+refunds.URL, "SIDECAR_PARK_ON_STATUS=422")
	refunds.On("bad", apptest.Say(apptest.Status(422)))
	a, log, stop := run(t, together(first, second))
	brokertest.Eventually(t, time.Minute, "both are ready", func() bool { return a.Ready("").Ready })

	queues := []string{"demo.queue.demo-orders", "demo.queue.demo-refunds"}
	ch := brokertest.Channel(t, brokertest.URL(t))
	send := func(queue, id string) { brokertest.Publish(t, ch, "", queue, withID(id)) }
	settled := func(queue, outcome string) float64 {
		return brokertest.Metric(t, a.registry, "sidecar_messages_settled_total", "queue", queue, "outcome", outcome)
	}
	send(queues[0], "good")
	send(queues[1], "bad")
	brokertest.Eventually(t, time.Minute, "each message settled as its app answered", func() bool {
		return settled(queues[0], "ack") == 1 && settled(queues[1], "park") == 1
	})
	if n := len(orders.Seen("bad")) + len(refunds.Seen("good")); n != 0 {
		t.Errorf("%d messages were POSTed to the app of the other queue", n)
	}
	brokertest.WaitReady(t, brokertest.URL(t), "demo.dlq.demo-refunds", 1)
	for name, want := range map[string]float64{
		"sidecar_consumer_active": 1, "sidecar_app_up": 1, "sidecar_max_retries": 10, "sidecar_http_requests_total": 1,
	} {
		for _, queue := range queues {
			if got := brokertest.Metric(t, a.registry, name, "queue", queue); got != want {
				t.Errorf("%s of %s is %v, want %v", name, queue, got, want)
			}
		}
	}
	if f := a.Flow(); f.Received != 2 || f.Settled["ack"] != 1 || f.Settled["park"] != 1 || f.Settled["retry"] != 0 || len(f.Settled) != message.Actions {
		t.Errorf("%+v", f)
	}
	brokertest.Eventually(t, time.Minute, "the depths of all queues are known", func() bool {
		depths := a.Flow().Depths
		i := slices.IndexFunc(depths, func(d declare.Depth) bool { return d.Queue == "demo.dlq.demo-refunds" })
		return len(depths) == 6 && depths[i].Kind == "dlq" && depths[i].Ready == 1
	})

	refunds.Shut()
	brokertest.Eventually(t, time.Minute, "one app is missed", func() bool { return !a.subscriptions[1].flow.AppUp() })
	send(queues[1], "waits")
	send(queues[0], "goes on")
	brokertest.Eventually(t, time.Minute, "the other goes on", func() bool { return settled(queues[0], "ack") == 2 })
	if st := a.Status(); len(st.Pauses) != 1 || st.App.Up || !a.Ready("").Ready {
		t.Errorf("%+v", st)
	}
	a.Pause("")
	if st := a.Status(); len(st.Pauses) != 3 { // the operator's of both, and the app's
		t.Errorf("pauses %+v", st.Pauses)
	}
	a.Drain()
	<-a.Drained()
	if slices.ContainsFunc(a.subscriptions, func(s *subscription) bool { return s.consumer.Active() }) {
		t.Error("drained, and a consumer is still there")
	}
	must.Do(t, stop())
	for _, queue := range queues {
		if n := len(log.Lines(`"msg":"drained"`, `"queue":"`+queue+`"`)); n != 1 {
			t.Errorf("%d lines say that %s is drained", n, queue)
		}
	}
	if n := brokertest.Ready(t, brokertest.URL(t), queues[1]); n != 1 {
		t.Errorf("%d messages wait for the app that is down", n)
	}
}

// TestQueueWithoutLeader: a broker answers its consumer by closing the connection. That costs the other queues their
// connection once, and then no more; the queue is consumed when it has a leader again.
func TestQueueWithoutLeader(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	first := live(t, "SIDECAR_APP_URL="+app.URL, "SIDECAR_QUEUE_TYPE=quorum")
	second := live(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_APP_URL="+app.URL)
	const broken, good = "demo.queue.demo-orders", "demo.queue.demo-refunds"
	leader := func(call string) {
		t.Helper()
		brokertest.Eval(t, fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"%s">>, queue, <<"%s">>)), `+
			`ok = ra:%s(quorum_queues, amqqueue:get_pid(Q)).`, brokertest.VhostName(t), broken, call))
	}
	declared(t, first)
	leader("stop_server")
	a, log, _ := run(t, together(first, second))
	brokertest.Eventually(t, time.Minute, "the queue has a connection of its own", a.subscriptions[0].isolated.Load)
	brokertest.Eventually(t, time.Minute, "the other is consumed", a.subscriptions[1].consumer.Active)
	brokertest.Eventually(t, 60*time.Second, "two more tries end their connections", func() bool {
		return len(log.Lines(`"msg":"broker session over"`, "INTERNAL_ERROR")) >= 3
	})
	if text := refusal(a.Status().Pauses); !strings.Contains(text, broken) || !strings.Contains(text, "INTERNAL_ERROR") {
		t.Errorf("the status says of the queue %q", text)
	}
	if !a.subscriptions[1].consumer.Active() || len(log.Lines(`"msg":"queue gets a connection of its own"`)) != 1 {
		t.Error("the other queue was interrupted again")
	}
	leader("restart_server")
	ch := brokertest.Channel(t, brokertest.URL(t))
	for _, queue := range []string{broken, good} {
		brokertest.Publish(t, ch, "", queue, withID(queue))
		brokertest.Eventually(t, 60*time.Second, "a message of "+queue, func() bool { return len(app.Seen(queue)) == 1 })
	}
}

// TestLaterSubscriptionFails: its error names its queue, and no worker of the first is left.
func TestLaterSubscriptionFails(t *testing.T) {
	t.Parallel()
	first := load(t)
	second := load(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_CRASH_LIMIT=3", "SIDECAR_CRASH_DIR="+t.TempDir()+"/none")
	_, err := New(together(first, second), Build{}, &apptest.Log{})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "queue demo.queue.demo-refunds: SIDECAR_CRASH_DIR=") {
		t.Error(err)
	}
}
