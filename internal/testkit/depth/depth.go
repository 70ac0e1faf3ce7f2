// Package depth counts what a queue holds. For tests only.
package depth

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Of asks the broker for a queue's ready messages and consumers. RabbitMQ answers with zeros for a quorum queue that
// has not told it within 250 ms, as on a busy machine: such a queue is asked again, for five seconds.
func Of(ch *amqp.Channel, queue string) (q amqp.Queue, err error) {
	for begun := time.Now(); ; {
		asked := time.Now()
		q, err = ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		unanswered := q.Messages+q.Consumers == 0 && time.Since(asked) >= 250*time.Millisecond
		if err != nil || !unanswered || time.Since(begun) > 5*time.Second {
			return q, err
		}
	}
}
