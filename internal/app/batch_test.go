package app

import (
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

// TestBatches: three messages are one POST, which the metrics count as one, and each is settled by its own verdict. The
// one that is tried again goes alone, in the form of a batch.
func TestBatches(t *testing.T) {
	t.Parallel()
	app, hold := apptest.NewApp(t), make(chan struct{})
	app.Otherwise(func(r *apptest.Request) apptest.Reply {
		if strings.Count(string(r.Body), "\n") == 1 {
			return apptest.Say(apptest.Status(204))
		}
		return apptest.Held(hold, apptest.Say(apptest.Full(207, `{"index":0,"status":422}`+"\n"+`{"index":2,"status":503}`+"\n")))
	})
	a, _, _ := run(t, live(t, "SIDECAR_BATCH_SIZE=3", "SIDECAR_BATCH_WAIT=1s", "SIDECAR_APP_URL="+app.URL,
		"SIDECAR_PARK_ON_STATUS=422", "SIDECAR_RETRY_DELAY=100ms"))
	brokertest.Eventually(t, time.Minute, "it is ready", func() bool { return a.Ready("").Ready && !a.subscriptions[0].flow.Ramping() })
	a.Pause("") // so that they arrive together
	brokertest.Eventually(t, time.Minute, "it is paused", func() bool { return !a.subscriptions[0].consumer.Active() })
	ch := brokertest.Channel(t, brokertest.URL(t))
	for _, id := range []string{"a", "b", "c"} {
		brokertest.Publish(t, ch, "", "demo.queue.demo-orders", withID(id))
	}
	a.Resume("")

	metric := func(name string, labels ...string) float64 { return brokertest.Metric(t, a.registry, name, labels...) }
	brokertest.Eventually(t, time.Minute, "all are POSTed", func() bool { return metric("sidecar_inflight_messages") == 3 })
	if n := metric("sidecar_inflight_requests"); n != 1 {
		t.Errorf("%v POSTs are under way", n)
	}
	close(hold)
	brokertest.Eventually(t, time.Minute, "each is settled", func() bool {
		return metric("sidecar_messages_settled_total", "outcome", "ack") == 2
	})
	for outcome, want := range map[string]float64{"park": 1, "retry": 1, "requeue": 0, "release": 0} {
		if n := metric("sidecar_messages_settled_total", "outcome", outcome); n != want {
			t.Errorf("%v messages were settled by %s, want %v", n, outcome, want)
		}
	}
	all := app.Requests()
	if len(all) != 2 || metric("sidecar_http_requests_total") != 2 || metric("sidecar_batch_messages") != 2 {
		t.Fatalf("%d POSTs, %v counted", len(all), metric("sidecar_http_requests_total"))
	}
	again := all[1]
	for _, part := range []string{`"message_id":"c"`, `"delivery":{"attempt":2,"retry_count":1,`} {
		if again.Header.Get("Content-Type") != "application/jsonl" || !strings.Contains(string(again.Body), part) {
			t.Errorf("the second POST does not say %s:\n%s", part, again.Raw)
		}
	}
}
