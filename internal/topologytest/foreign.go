package topologytest

import (
	"maps"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// Arguments that name other objects.
const (
	argDLX   = "x-dead-letter-exchange"
	argDLKey = "x-dead-letter-routing-key"
)

// foreignRetries: a retry that returns through an exchange reaches every queue that is bound to it. A sidecar that it
// is not meant for acks it without asking its app, which has had the message already.
func foreignRetries(t *testing.T, plan *topology.Plan) {
	r, everything := begin(t, plan), begin(t, listener(t, plan))
	ids := named("theirs", 2)
	for _, id := range ids {
		r.app.On(id, failing())
	}
	r.send(t, ids...)
	for _, id := range ids {
		r.ends(t, id, 1, "park", "max_retries")
		r.receipts(t, id, numbers(0, plan.MaxRetries)...)
		brokertest.Eventually(t, patience, "the other service settles all of "+id, func() bool {
			return len(everything.log.finals(id)) > plan.MaxRetries
		})
		ends := map[string]int{} // in any order: the first retry may return before the answer to the message itself
		for _, s := range everything.log.finals(id) {
			ends[s.Outcome+" "+s.Reason]++
		}
		if want := map[string]int{"ack success": 1, "ack foreign_retry": plan.MaxRetries}; !maps.Equal(ends, want) {
			t.Errorf("%s was settled by the other service as %v, want %v", id, ends, want)
		}
		everything.receipts(t, id, 0)
	}
	// A message published to the queue by its name is meant for it, whatever the stamp says.
	m := message("by-name")
	m.Headers = amqp.Table{topology.HeaderRetryQueue: plan.Queue}
	everything.put(t, m)
	everything.acked(t, m.MessageId)
	everything.stopsEmpty(t)
}

// listener is a service beside the plan's that listens to all that returns.
func listener(t *testing.T, plan *topology.Plan) *topology.Plan {
	t.Helper()
	for _, q := range plan.Queues {
		back, _ := q.Args[argDLX].(string)
		if q.Kind != topology.KindRetry || back == "" {
			continue
		}
		for _, x := range plan.Exchanges {
			if x.Name != back {
				continue
			}
			name := plan.Queue + ".other"
			return &topology.Plan{
				Preset: plan.Preset, Service: "other", Queue: name, StampQueue: true,
				Exchanges: []topology.Exchange{x}, Queues: []topology.Queue{{Name: name, Kind: topology.KindMain}},
				Bindings: []topology.Binding{{Exchange: x.Name, Key: "#", Queue: name}},
			}
		}
	}
	t.Fatal("no retry of the plan returns through an exchange of its own")
	return nil
}
