package topologytest

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/brokertest"
	"sidecar/internal/topology"
)

// delayedBy is the plan of native with these delays and three retries.
func delayedBy(t *testing.T, delays ...time.Duration) *topology.Plan {
	t.Helper()
	three := 3
	o := topology.Options{Preset: topology.PresetNative, MaxRetries: &three, RetryDelay: delays[0]}
	if len(delays) > 1 {
		o.RetryDelay, o.RetryDelays = 0, delays
	}
	return build(t, o)
}

// TestChangedDelayInTheQueue: where the queue exists with other delays, retries wait in queues beside it, in verify mode
// too once they exist. With the delays of the queue they wait in it again, and what is still beside it goes on counting.
func TestChangedDelayInTheQueue(t *testing.T) {
	t.Parallel()
	for name, delays := range map[string][]time.Duration{"several": {2 * brief, 3 * brief}, "shorter": {brief / 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, changed := delayedBy(t, brief), delayedBy(t, delays...)
			place(t, old)
			url := brokertest.URL(t)
			declareTopology(t, url, old)
			for _, mode := range []topology.Mode{topology.ModeDeclare, topology.ModeVerify} {
				r := startIn(t, changed, mode)
				want := ownQueue + "." + topology.TierLabel(delays[len(delays)-1])
				if queue := r.failsTo(t, "changed "+string(mode), delays); queue != want {
					t.Errorf("%s: waited in %q, want %q", mode, queue, want)
				}
				r.stop()
			}
			r := start(t, old)
			if queue := r.failsTo(t, "back", []time.Duration{brief}); queue != "" {
				t.Errorf("waited in %q", queue)
			}
			beside := message("beside")
			beside.Headers = amqp.Table{"x-retry-count": 2}
			r.app.On("beside", failing())
			brokertest.Publish(t, brokertest.Channel(t, url), "", ownQueue+"."+topology.TierLabel(delays[0]), beside)
			r.ends(t, "beside", 1, "park", "max_retries")
			r.receipts(t, "beside", 2, 3)
		})
	}
}

// failsTo sends a message that fails until it is parked, and returns where its last retry has waited, which the broker
// writes down; empty: in the service's queue.
func (r *rig) failsTo(t *testing.T, id string, delays []time.Duration) string {
	t.Helper()
	r.app.On(id, failing())
	r.send(t, id)
	d := brokertest.Get(t, r.url, deadQueue, patience)
	if d.MessageId != id || d.Headers["x-final-retry-count"] != int32(3) {
		t.Fatalf("%s is parked with %v", d.MessageId, d.Headers)
	}
	waited(t, r.receipts(t, id, 0, 1, 2, 3), func(failed int) time.Duration { return delays[min(failed, len(delays)-1)] })
	if queues := expiredIn(&d); len(queues) > 0 {
		return queues[0]
	}
	return ""
}
