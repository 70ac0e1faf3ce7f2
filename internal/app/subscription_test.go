package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
	second := load(t, "SIDECAR_SERVICE=demo-refunds")
	second.App.URL = "gopher://app/"
	_, err := New(together(first, second), Build{}, &apptest.Log{})
	if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "queue demo.queue.demo-refunds: app URL: ") {
		t.Error(err)
	}
}

// TestOrderWithAPlanFile: the queue of the file must have a single active consumer, too.
func TestOrderWithAPlanFile(t *testing.T) {
	t.Parallel()
	file := planFile(t, load(t), nil)
	refused(t, "SIDECAR_ORDER_BY needs x-single-active-consumer=true", "SIDECAR_PLAN_FILE", file, "SIDECAR_ORDER_BY=queue")
	load(t, file, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")
	load(t, planFile(t, load(t, "SIDECAR_ORDER_BY=queue"), nil), "SIDECAR_ORDER_BY=queue")
}

// TestOneMainExchange: rows of the outbox and requests without another exchange go to the service's main exchange, and
// not to an exchange of another service that its queue is bound to first.
func TestOneMainExchange(t *testing.T) {
	t.Parallel()
	for _, bindings := range []string{"", "orders.events:order.*", "orders.events:order.*,demo.main-exchange:"} {
		cfg := load(t, "SIDECAR_BINDINGS="+bindings, "SIDECAR_PUBLISH_ADDR=127.0.0.1:0", "SIDECAR_OUTBOX_DSN=host=/tmp")
		plan := must.Get(newPlan(cfg))(t)
		rows, requests := fresh(t, cfg).outboxOptions(nil, plan).Exchange, publishAliases(cfg, plan)[config.DefaultAlias]
		const want = "demo.main-exchange"
		if rows != want || requests != want || !slices.Equal(published(cfg, plan), []string{want, want}) {
			t.Errorf("bound to %q: rows to %q, requests to %q, permissions for %q", bindings, rows, requests, published(cfg, plan))
		}
	}
	cfg := load(t, "SIDECAR_PUBLISH_EXCHANGES=default=amq.default", "SIDECAR_OUTBOX_DSN=host=/tmp")
	plan := must.Get(newPlan(cfg))(t)
	if rows := fresh(t, cfg).outboxOptions(nil, plan).Exchange; rows != "" || !slices.Equal(published(cfg, plan), []string{""}) {
		t.Errorf("amq.default: rows to %q, permissions for %q", rows, published(cfg, plan))
	}
}

// TestOneConnectionForAll: subscriptions share one connection to consume and one to publish. A queue that is deleted, or
// declared anew, interrupts no other, and is consumed again.
func TestOneConnectionForAll(t *testing.T) {
	t.Parallel()
	app := apptest.NewApp(t)
	first := live(t, "SIDECAR_APP_URL="+app.URL+"/orders")
	second := live(t, "SIDECAR_SERVICE=demo-refunds", "SIDECAR_APP_URL="+app.URL+"/refunds")
	a, log, _ := run(t, together(first, second))
	brokertest.Eventually(t, time.Minute, "both are ready", func() bool { return a.Ready("").Ready })
	ch := brokertest.Channel(t, brokertest.URL(t))
	const gone, stays = "demo.queue.demo-orders", "demo.queue.demo-refunds"
	hold := make(chan struct{})
	release := sync.OnceFunc(func() { close(hold) })
	t.Cleanup(release)
	app.On("under way", apptest.Held(hold, apptest.Say(apptest.Status(200))))
	brokertest.Publish(t, ch, "", stays, withID("under way"))
	brokertest.Eventually(t, time.Minute, "a message of the other is under way", func() bool { return len(app.Seen("under way")) == 1 })

	must.Get(ch.QueueDelete(gone, false, false, false))(t)
	brokertest.Eventually(t, time.Minute, "the end of the channel is seen", func() bool {
		return len(log.Lines(`"msg":"broker channel over"`, `"cause":"cancelled"`)) == 1
	})
	brokertest.Eventually(t, time.Minute, "the queue is there and consumed again", a.subscriptions[0].consumer.Active)
	brokertest.Publish(t, ch, "", gone, withID("again"))
	brokertest.Eventually(t, time.Minute, "a message of the new queue", func() bool { return len(app.Seen("again")) == 1 })
	release()
	brokertest.Eventually(t, time.Minute, "the other is settled", func() bool {
		return brokertest.Metric(t, a.registry, "sidecar_messages_settled_total", "queue", stays, "outcome", "ack") == 1
	})
	if n := len(app.Seen("under way")); n != 1 {
		t.Errorf("the message of the other queue was POSTed %d times", n)
	}
	if n := len(log.Lines(`"msg":"broker connected"`)); n != 2 {
		t.Errorf("%d connections were made", n)
	}
}
