package app

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
)

const dayLong = "SIDECAR_APP_TIMEOUT=24h"

// TestLongAttempts are the settings that may have attempts that are longer than the broker waits by itself.
func TestLongAttempts(t *testing.T) {
	t.Parallel()
	classic, quorum := planFile(t, load(t), nil), planFile(t, load(t, "SIDECAR_QUEUE_TYPE=quorum"), nil)
	for _, more := range []string{"SIDECAR_TOPOLOGY=native", "SIDECAR_QUEUE_TYPE=quorum", quorum} {
		accepted(t, dayLong, "SIDECAR_RETRY_AFTER_MAX=24m", more)
	}
	accepted(t, "SIDECAR_SUBSCRIPTIONS=a,b", "SIDECAR_SUB_A_TOPOLOGY=native", "SIDECAR_SUB_A_APP_TIMEOUT=24h")
	refused(t, "not be more than 20m", "SIDECAR_SUB_B_APP_TIMEOUT", "SIDECAR_SUBSCRIPTIONS=a,b", "SIDECAR_SUB_A_TOPOLOGY=native", "SIDECAR_SUB_B_APP_TIMEOUT=24h")
	refused(t, "not be more than 20m", "SIDECAR_APP_TIMEOUT", dayLong, "SIDECAR_TOPOLOGY=delay-ladder", "SIDECAR_BINDINGS=a:b") // its type is decided by what exists
	refused(t, "the plan's queue is not a quorum queue", "SIDECAR_APP_TIMEOUT", dayLong, classic)
	refused(t, "without SIDECAR_ORDER_BY", "SIDECAR_APP_TIMEOUT", dayLong, quorum, "SIDECAR_ORDER_BY=queue", "SIDECAR_ORDER_SCOPE=replica")
}

// TestLongAttemptsOfABroker: with attempts of a day messages are consumed from RabbitMQ 4.3 only, and from a quorum queue
// only: its consumer asks for the time. Where the sidecar consumes nothing, check says the same.
func TestLongAttemptsOfABroker(t *testing.T) {
	t.Parallel()
	recent := !strings.HasPrefix(brokertest.Version(t), "3.") && !strings.HasPrefix(brokertest.Version(t), "4.0.")
	for _, c := range []struct {
		name, mode string
		given      amqp.Table // of a queue that exists
		from43     string     // what RabbitMQ 4.3 makes of it: the argument of the problem; empty: it is consumed
	}{
		{name: "declared", mode: "declare"},
		{name: "unseen", mode: "none", given: amqp.Table{"x-queue-type": "quorum"}},
		{name: "classic", mode: "declare", given: amqp.Table{}, from43: "x-queue-type"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cfg := live(t, dayLong, "SIDECAR_SERVICE=demo-"+c.name, "SIDECAR_QUEUE_TYPE=quorum", "SIDECAR_TOPOLOGY_MODE="+c.mode,
				"SIDECAR_CONCURRENCY=1", "SIDECAR_PREFETCH=19")
			queue := must.Get(newPlan(cfg))(t).Queue
			if c.given != nil {
				brokertest.Queue(t, brokertest.URL(t), queue, c.given)
			}
			a, _, _ := run(t, cfg)
			sub := a.subscriptions[0]
			if recent && c.from43 == "" {
				consumesFor(t, queue, 20*(24*time.Hour+5*time.Minute))
				return
			}
			problem, says := "version", topology.FixAttempt+" at most 25m, or upgrade every node"
			if recent {
				problem, says = "drift", topology.FixAttempt+" at most 25m, or set SIDECAR_QUEUE to another name"
			}
			brokertest.Eventually(t, time.Minute, "a finding", sub.status.bad)
			findings, _ := sub.status.last()
			r, _ := checked(t, cfg)
			if f := findings[0]; string(f.Problem) != problem || !strings.Contains(f.Fix, says) || sub.consumer.Active() {
				t.Errorf("consuming: %v, found: %v", sub.consumer.Active(), f)
			}
			if len(r.Findings) == 0 || r.Fits || r.Findings[0].Problem != problem {
				t.Errorf("check found %v", r.Findings)
			}
		})
	}
}

// consumesFor waits for the consumer of a queue, which has to ask for that much time.
func consumesFor(t *testing.T, queue string, want time.Duration) {
	t.Helper()
	brokertest.Eventually(t, time.Minute, "a consumer that asks for "+want.String(), func() bool {
		for _, row := range brokertest.Rows(t, "consumers", "queue_name", "arguments") {
			args, _ := row["arguments"].(map[string]any)
			if ms, _ := args["x-consumer-timeout"].(float64); row["queue_name"] == queue && int64(ms) == want.Milliseconds() {
				return true
			}
		}
		return false
	})
}
