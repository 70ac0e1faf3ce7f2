package topology

import (
	"math"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Queue arguments. x-consumer-timeout and x-delayed-retry-* are missing on purpose: one is refused by some brokers,
// the other is accepted and ignored by most.
const (
	ArgDLX           = "x-dead-letter-exchange"
	ArgDLKey         = "x-dead-letter-routing-key"
	ArgTTL           = "x-message-ttl"
	ArgType          = "x-queue-type"
	ArgStrategy      = "x-dead-letter-strategy"
	ArgOverflow      = "x-overflow"
	ArgDeliveryLimit = "x-delivery-limit"
)

// Queue types, as the argument x-queue-type says them, and other values of arguments.
const (
	TypeClassic = "classic"
	TypeQuorum  = "quorum"

	strategyAtLeastOnce = "at-least-once"
	overflowReject      = "reject-publish"

	// NoDeliveryLimit means "no limit" on every broker version. -1 would say the same on some, but RabbitMQ 3.10 takes it
	// for a limit that is already reached.
	NoDeliveryLimit int64 = math.MaxInt32
)

// Every integer argument is an int64. RabbitMQ compares integers by value whatever their width, so a queue that another
// client declared with 32 bits is the same queue; but it distinguishes integers from texts and floats.

// waitArgs are the arguments of a queue that holds messages for delay and then publishes them to exchange with key.
func waitArgs(delay time.Duration, exchange, key string, quorum bool) amqp.Table {
	args := amqp.Table{ArgTTL: delay.Milliseconds(), ArgDLX: exchange, ArgDLKey: key}
	if quorum {
		keepDeadLetters(args)
	}
	return args
}

// parkArgs are the arguments of a dead-letter queue: messages stay until they are taken out.
func parkArgs(quorum bool) amqp.Table {
	if !quorum {
		return nil
	}
	return amqp.Table{ArgType: TypeQuorum, ArgDeliveryLimit: NoDeliveryLimit}
}

// keepDeadLetters makes a quorum queue hold a dead letter until its target has confirmed it. The broker only does so
// together with reject-publish.
func keepDeadLetters(args amqp.Table) {
	args[ArgType] = TypeQuorum
	args[ArgStrategy] = strategyAtLeastOnce
	args[ArgOverflow] = overflowReject
}
