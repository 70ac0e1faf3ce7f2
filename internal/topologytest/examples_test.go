package topologytest

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

const headersExample = "../../examples/topologies/headers/billing.json"

// examplePlan reads a plan file of the examples, and shortens its delays: waiting for minutes proves nothing more.
func examplePlan(t *testing.T, path string) *topology.Plan {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	p, err := topology.ParsePlan(raw, "example", 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Waits {
		w := &p.Waits[i]
		w.Delay = tiers[i]
		for j := range p.Queues {
			if q := &p.Queues[j]; q.Name == w.Queue {
				q.Args = maps.Clone(q.Args)
				q.Args[topology.ArgTTL] = w.Delay.Milliseconds()
			}
		}
	}
	return p
}

// TestExamplePlans: a plan from a file, which no preset builds, needs no line of code anywhere.
func TestExamplePlans(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/topologies/*/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			t.Parallel()
			Exercise(t, examplePlan(t, file), checksOf(file))
		})
	}
}

// TestReturnByAnExchange: a plan whose messages are rejected into the retry queue, and return by a named exchange.
func TestReturnByAnExchange(t *testing.T) {
	t.Parallel()
	four := 4
	plan, err := topology.Build(topology.Options{Service: "orders-svc", RetryDelay: brief, MaxRetries: &four})
	if err != nil {
		t.Fatal(err)
	}
	plan.StampQueue = true
	for i := range plan.Queues {
		if q := &plan.Queues[i]; q.Name == waitQueue {
			q.Args = with(q.Args, topology.ArgDLX, retryExchange, topology.ArgDLKey, "back")
		}
	}
	plan.Bindings = append(plan.Bindings, topology.Binding{Exchange: retryExchange, Key: "back", Queue: ownQueue})
	Exercise(t, plan, checksOf("return by an exchange"))
}

// TestTheHeadersExchangeSorts: the bindings' arguments reach the broker with their types, which sends on what matches
// and nothing else.
func TestTheHeadersExchangeSorts(t *testing.T) {
	t.Parallel()
	plan, url := examplePlan(t, headersExample), brokertest.URL(t)
	declareTopology(t, url, plan)
	ch := brokertest.Channel(t, url)
	exchange := plan.Bindings[0].Exchange
	for _, headers := range []amqp.Table{
		{"kind": "invoice", "version": int64(2), "country": "PT"}, {"refund": true}, {"chargeback": true, "refund": false},
	} {
		m := message("billing")
		m.Headers = headers
		brokertest.Publish(t, ch, exchange, "", m)
	}
	brokertest.WaitReady(t, url, plan.Queue, 3)
	ch = brokertest.Channel(t, url) // the returns of the other one are listened to by Publish
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	for _, headers := range []amqp.Table{
		{"kind": "invoice"}, {"kind": "invoice", "version": "2"}, {"kind": "order", "version": int64(2)}, {"refund": "true"}, nil,
	} {
		confirm, err := ch.PublishWithDeferredConfirm(exchange, "", true, false, amqp.Publishing{Headers: headers})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := confirm.WaitContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		select {
		case <-returned:
		default:
			t.Errorf("a message with %v found a queue", headers)
		}
	}
}
