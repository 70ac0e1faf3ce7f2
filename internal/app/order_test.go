package app

import (
	"fmt"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
)

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
