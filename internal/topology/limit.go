package topology

import (
	"context"
	"math"
	"strconv"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Unlimited is a delivery limit that no message reaches.
const Unlimited = math.MaxInt32

// assumedLimit is taken for the delivery limit of a quorum queue of which nobody knows it: what brokers from RabbitMQ 4.0
// give to a queue that names none.
const assumedLimit = 20

// DeliveryLimit asks how often a message may be given back to a queue before a quorum queue drops it. It asks by declaring
// the queue, which has to exist, as one without a limit: what is refused names the limit. Where the user may not declare,
// the limit is assumed to be the smallest in common use. A limit set by a policy cannot be seen over AMQP. On a classic
// queue the number means nothing.
func DeliveryLimit(ctx context.Context, s Session, queue string) (int, error) {
	p := prober{s: s}
	defer p.close(ctx)
	args := amqp.Table{argType: typeQuorum, argDeliveryLimit: deliveryLimit}
	refusal, err := p.ask(ctx, "ask for the delivery limit of "+queueObject(queue), activeQueue(queue, args))
	if err != nil {
		return 0, err
	}
	if refusal == nil {
		return Unlimited, nil
	}
	if property, found, ok := drifted(refusal); ok && property == argDeliveryLimit {
		if n, err := strconv.Atoi(found); err == nil {
			return min(n, Unlimited), nil
		}
	}
	return assumedLimit, nil
}
