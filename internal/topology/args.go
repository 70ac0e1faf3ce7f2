package topology

import (
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Queue arguments. x-consumer-timeout and x-delayed-retry-* are missing on purpose: one is refused by some brokers,
// the other is accepted and ignored by most.
const (
	argDLX           = "x-dead-letter-exchange"
	argDLKey         = "x-dead-letter-routing-key"
	argTTL           = "x-message-ttl"
	argType          = "x-queue-type"
	argStrategy      = "x-dead-letter-strategy"
	argOverflow      = "x-overflow"
	argDeliveryLimit = "x-delivery-limit"
)

const (
	typeClassic = "classic"
	typeQuorum  = "quorum"

	strategyAtLeastOnce = "at-least-once"
	overflowReject      = "reject-publish"

	// deliveryLimit means "no limit" on every broker version. -1 would say the same on some, but RabbitMQ 3.10 takes it
	// for a limit that is already reached.
	deliveryLimit int64 = math.MaxInt32
)

// Every integer argument is an int64. RabbitMQ compares integers by value whatever their width, so a queue that
// another client declared with 32 bits is the same queue; it does tell integers from texts and floats.

// waitArgs are the arguments of a queue that holds messages for delay and then publishes them to exchange with key.
func waitArgs(delay time.Duration, exchange, key string, quorum bool) amqp.Table {
	args := amqp.Table{argTTL: delay.Milliseconds(), argDLX: exchange, argDLKey: key}
	if quorum {
		keepDeadLetters(args)
	}
	return args
}

// parkArgs are the arguments of a dead-letter queue: messages stay until somebody takes them out.
func parkArgs(quorum bool) amqp.Table {
	if !quorum {
		return nil
	}
	return amqp.Table{argType: typeQuorum, argDeliveryLimit: deliveryLimit}
}

// keepDeadLetters makes a quorum queue hold a dead letter until its target has confirmed it. The broker only does so
// together with reject-publish.
func keepDeadLetters(args amqp.Table) {
	args[argType] = typeQuorum
	args[argStrategy] = strategyAtLeastOnce
	args[argOverflow] = overflowReject
}
