package topologytest

import (
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
	url := brokertest.URL(t)
	declareTopology(t, url, plan)
	other := listener(t, plan)
	declareTopology(t, url, other)
	r, everything := start(t, plan), start(t, other)
	ids := named("theirs", 2)
	for _, id := range ids {
		r.app.On(id, failing())
	}
	r.send(t, ids...)
	for _, id := range ids {
		if s := r.end(t, id, 1); s.Outcome != "park" || s.Reason != "max_retries" {
			t.Errorf("%s ended by %s (%s)", id, s.Outcome, s.Reason)
		}
		if n := len(r.app.Seen(id)); n != plan.MaxRetries+1 {
			t.Errorf("%s: %d attempts, want %d", id, n, plan.MaxRetries+1)
		}
		for n := range plan.MaxRetries + 1 {
			want := "foreign_retry"
			if n == 0 {
				want = "success"
			}
			if s := everything.end(t, id, n+1); s.Outcome != "ack" || s.Reason != want {
				t.Errorf("%s, delivery %d to the other service ended by %s (%s), want an ack (%s)", id, n, s.Outcome, s.Reason,
					want)
			}
		}
		if n := len(everything.app.Seen(id)); n != 1 {
			t.Errorf("%s: the other app received it %d times", id, n)
		}
	}
	// A message published to the queue by its name is meant for it, whatever the stamp says.
	m := message("by-name")
	m.Headers = amqp.Table{topology.HeaderRetryQueue: plan.Queue}
	everything.put(t, m)
	if s := everything.end(t, m.MessageId, 1); s.Reason != "success" {
		t.Errorf("%s ended by %s (%s)", m.MessageId, s.Outcome, s.Reason)
	}
	everything.stop()
	brokertest.WaitReady(t, url, other.Queue, 0)
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
