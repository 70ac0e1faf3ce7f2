package app

import (
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
)

// TestLostConsumer: the queue is consumed again, and the log says what it says of a consumer that the broker cancels.
func TestLostConsumer(t *testing.T) {
	t.Parallel()
	a, sub, log := consuming(t, live(t))
	before := sub.consumer.Registered()
	before.Lost()
	brokertest.Eventually(t, time.Minute, "consuming again", func() bool {
		now := sub.consumer.Registered()
		return now != nil && now != before
	})
	brokertest.Publish(t, brokertest.Channel(t, brokertest.URL(t)), "", a.plan.Queue, amqp.Publishing{})
	brokertest.Eventually(t, time.Minute, "a message is received", func() bool { return sub.consumer.Received() == 1 })
	brokertest.Eventually(t, time.Minute, "the log has it", func() bool {
		return len(log.Lines(`"broker channel over"`, `"cause":"cancelled"`, "messages wait and the queue has no consumer")) == 1 &&
			len(log.Lines(`"consumer cancelled"`, a.plan.Queue)) == 1
	})
}

// TestConsumerMissedTwice: two measurements find messages and no consumer, so the consumer counts as lost. No broker loses
// one on request: the measured queue is another one.
func TestConsumerMissedTwice(t *testing.T) {
	t.Parallel()
	declared(t, live(t))
	other := declared(t, live(t, "SIDECAR_SERVICE=demo-other"))
	brokertest.Send(t, brokertest.URL(t), other.Queue, "m")
	_, sub, log := consuming(t, live(t, "SIDECAR_TOPOLOGY_MODE=none"), checkEvery(50*time.Millisecond))
	sub.current.Store(other)
	brokertest.Eventually(t, time.Minute, "the consumer is lost", func() bool {
		return len(log.Lines(`"broker channel over"`, "messages wait and the queue has no consumer")) > 0
	})
}

// TestLostLater: a measurement right behind another one says nothing more, and what a consumer had begins anew with the
// next.
func TestLostLater(t *testing.T) {
	t.Parallel()
	var u unconsumed
	a, b, start := new(broker.Consumer), new(broker.Consumer), time.Now()
	for _, step := range []struct {
		before, now *broker.Consumer
		after       time.Duration
		lost        bool
	}{
		{a, a, 0, false}, {a, a, 4, false}, {nil, nil, 5, false}, {a, a, 6, false}, {b, b, 12, false}, {b, b, 16, false},
		{b, b, 17, true}, {a, a, 30, false}, {a, a, 36, true}, {a, b, 40, false}, {b, a, 50, false}, {a, a, 60, false},
	} {
		if lost := u.see(step.before, step.now, start.Add(step.after*time.Second), 5*time.Second); lost != step.lost {
			t.Errorf("after %d s: lost is %v", step.after, lost)
		}
	}
}
