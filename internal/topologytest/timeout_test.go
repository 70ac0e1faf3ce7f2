package topologytest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"sidecar/internal/apptest"
	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// consumerTimeout is what the broker grants here instead of its half hour.
const consumerTimeout = 2 * time.Second

// TestConsumerTimeout holds a message longer than the broker waits for a consumer.
//
//	RabbitMQ 3.10, 4.0         the channel is closed (406): the message is delivered again, waits for the answer of the
//	                           attempt under way, and is acked by it without another POST
//	RabbitMQ 4.3, quorum       nothing happens: the consumer has asked for more time
//	RabbitMQ 4.3, classic      nothing happens: the broker has no timeout
func TestConsumerTimeout(t *testing.T) {
	t.Parallel()
	brokertest.OwnNode(t).ConsumerTimeout(int(consumerTimeout.Milliseconds()), 500)
	version := brokertest.Version(t)
	cause := ""
	if strings.HasPrefix(version, "3.") || strings.HasPrefix(version, "4.0.") {
		cause = "channel"
	}
	t.Run("all", func(t *testing.T) {
		for _, queueType := range []string{"classic", "quorum"} {
			t.Run(queueType, func(t *testing.T) {
				t.Parallel()
				overdue(t, build(t, topology.Options{Service: queueType + "-late", QueueType: queueType, RetryDelay: brief}), cause)
			})
		}
	})
}

// overdue: cause is why the session has to end while the message is held, empty when it must not.
func overdue(t *testing.T, plan *topology.Plan, cause string) {
	r := begin(t, plan)
	gate := make(chan struct{})
	ids := named("overdue", 3)
	for _, id := range ids {
		r.app.On(id, apptest.Held(gate, status(http.StatusOK)), status(http.StatusOK))
	}
	r.send(t, ids...)
	const reconnects = "sidecar_amqp_reconnects_total"
	if cause == "" {
		time.Sleep(3 * consumerTimeout) // what does not happen cannot be waited for
	} else {
		brokertest.Eventually(t, patience, "the broker gives up on the consumer", func() bool {
			return brokertest.Metric(t, r.registry, reconnects, "cause", cause) > 0
		})
	}
	close(gate)
	r.acked(t, ids...)
	r.stopsEmpty(t)
	for _, id := range ids {
		if r.receipts(t, id, 0); len(r.log.finals(id)) != 1 {
			t.Errorf("%s: acked %d times", id, len(r.log.finals(id)))
		}
	}
	if n := brokertest.Metric(t, r.registry, reconnects); cause == "" && n != 0 {
		t.Errorf("%v new sessions on a broker that waits for ever", n)
	}
}
