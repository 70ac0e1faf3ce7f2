package topologytest

import (
	"maps"
	"strconv"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// otherConsumer is a consumer without a sidecar: where it publishes the n-th retry of a message that it received, and
// the headers it writes.
type otherConsumer struct {
	options topology.Options
	key     string // the message's
	retry   func(d *amqp.Delivery, n int) (exchange, key string, h amqp.Table)
}

// otherConsumers are those of two systems whose topologies are presets.
var otherConsumers = map[string]otherConsumer{
	// The retry count, and the origin.
	"topic tiers": {
		options: topology.Options{Preset: topology.PresetTopicTiers, Service: "freeflow-user", RetryDelays: tiers},
		key:     "user.created",
		retry: func(_ *amqp.Delivery, n int) (string, string, amqp.Table) {
			return "freeflow.events.retry", "user." + topology.TierLabel(tiers[n-1]), amqp.Table{
				"x-retry-count": strconv.Itoa(n), "x-original-routing-key": "user.created", "x-original-exchange": "freeflow.events",
			}
		},
	},
	// All headers as received, the number of the coming attempt, and the key.
	"delay ladder": {
		options: topology.Options{Preset: topology.PresetDelayLadder, Service: "demo-order_processor", RetryDelays: tiers,
			Bindings: []topology.Binding{{Exchange: "demo.events", Key: "order.process"}}},
		key: "order.process",
		retry: func(d *amqp.Delivery, n int) (string, string, amqp.Table) {
			h := amqp.Table{}
			maps.Copy(h, d.Headers)
			h["x-delivery-count"], h["x-original-routing-key"] = strconv.Itoa(n+1), "order.process"
			return "", "demo.order_processor.delay_" + topology.TierLabel(tiers[n-1]), h
		},
	},
}

// TestCountsOfOtherConsumers: a message that another consumer has retried twice, with the counts that it writes as text,
// goes on counting when a sidecar takes the queue over, and is parked with the sum of both.
func TestCountsOfOtherConsumers(t *testing.T) {
	t.Parallel()
	for name, c := range otherConsumers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plan, err := topology.Build(c.options)
			if err != nil {
				t.Fatal(err)
			}
			takenOver(t, plan, c)
		})
	}
}

func takenOver(t *testing.T, plan *topology.Plan, c otherConsumer) {
	t.Helper()
	const id, retries = "taken-over", 2
	url := brokertest.URL(t)
	declareTopology(t, url, plan)
	ch := brokertest.Channel(t, url)
	brokertest.Publish(t, ch, plan.Exchanges[0].Name, c.key, message(id))
	for n := 1; n <= retries; n++ {
		d := brokertest.Get(t, url, plan.Queue, patience)
		m := message(id)
		var exchange, key string
		exchange, key, m.Headers = c.retry(&d, n)
		brokertest.Publish(t, ch, exchange, key, m)
	}
	brokertest.WaitReady(t, url, plan.Queue, 1)
	r := start(t, plan)
	r.app.On(id, failing())
	r.end(t, id, 1)
	list := r.app.Seen(id)
	if len(list) != plan.MaxRetries+1-retries {
		t.Fatalf("%d attempts after %d retries", len(list), retries)
	}
	for i := range list {
		if list[i].Number("Amqp-Retry-Count") != retries+i {
			t.Errorf("receipt %d: Amqp-Retry-Count %q", i, list[i].Header.Get("Amqp-Retry-Count"))
		}
		if key := list[i].Header.Get("Amqp-Routing-Key"); key != c.key {
			t.Errorf("receipt %d: Amqp-Routing-Key %q, want %q", i, key, c.key)
		}
	}
	d := brokertest.Get(t, url, plan.Park.Queue, patience)
	for name, want := range map[string]any{
		"x-final-reason": "max_retries", "x-final-retry-count": int32(plan.MaxRetries), //nolint:gosec // a few
		"x-retry-count": int32(plan.MaxRetries), "x-original-routing-key": c.key, //nolint:gosec // a few
	} {
		if d.Headers[name] != want {
			t.Errorf("%s: %v (%T), want %v", name, d.Headers[name], d.Headers[name], want)
		}
	}
}
