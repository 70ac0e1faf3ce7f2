package declare

import (
	"context"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

const (
	// unanswered is how long RabbitMQ asks a quorum queue what it holds. After that it answers for the queue: no message
	// and no consumer, as if it were empty.
	unanswered = 250 * time.Millisecond
	// countLimit bounds for how long a queue is asked again that stays busy.
	countLimit = 2 * time.Second
)

// Count returns how many messages of a queue are ready and how many consumers it has. It asks again when the zeros may
// be the broker's own: an empty queue answers at once. So an empty queue of a broker that is 250 ms away costs two
// seconds. A quorum queue without a leader is reported with zeros.
func Count(ch *amqp.Channel, queue string) (q amqp.Queue, err error) {
	for begun := time.Now(); ; {
		asked := time.Now()
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil || q.Messages+q.Consumers > 0 || time.Since(asked) < unanswered || time.Since(begun) > countLimit {
			return q, err
		}
	}
}

// Ready returns the number of messages that are ready in a queue; 0 if it does not exist, or the user may not ask. An
// error is a failure of the session.
func Ready(ctx context.Context, s Session, queue string) (int, error) {
	p := prober{s: s}
	defer p.close(ctx)
	o := queueOf(&topology.Queue{Name: queue})
	if p.ask(ctx, lookFor+o.title, o.passive) != nil {
		return 0, nil
	}
	return o.counts.Messages, p.err
}
