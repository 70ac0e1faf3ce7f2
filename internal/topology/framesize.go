package topology

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpvalue"
	"sidecar/internal/message"
)

// A message's properties, header table included, travel in one frame: they cannot be split. A peer that gets more
// than the agreed frame size closes the connection, and a message that cannot be delivered would do so for ever.
const (
	// FrameMax is the frame size, in bytes, that RabbitMQ and the client library agree on.
	FrameMax = 131072

	frameOverhead = 8 + 12 // frame header and end, content class, weight and body size
	propertyFlags = 2

	// RetryReserve is kept free for what the broker adds when it dead-letters a message: two x-death entries and the
	// first and last death, with names of up to 255 bytes each.
	RetryReserve = 4096
	// parkReserve is kept free for what a redrive adds to a parked message, and a broker on delivering it.
	parkReserve = 1024
)

// nearFrameMax reports whether m, as it was received, leaves the broker no room for its bookkeeping.
func nearFrameMax(m *message.Message) bool {
	pub := publishing(m, m.Headers)
	pub.UserId, pub.Expiration, pub.ReplyTo = m.UserID, m.Expiration, m.ReplyTo
	reserve := RetryReserve
	if cc, ok := m.Headers["CC"]; ok {
		reserve += entrySize("CC", cc) // copied into x-death as routing keys; from RabbitMQ 4.0 the header stays as well
	}
	return overweight(&pub, reserve)
}

// overweight reports whether the properties do not fit a frame with reserve bytes to spare.
func overweight(pub *amqp.Publishing, reserve int) bool {
	return HeaderFrameSize(pub) > FrameMax-reserve
}

// HeaderFrameSize is the size in bytes of the frame that carries pub's properties.
func HeaderFrameSize(pub *amqp.Publishing) int {
	n := frameOverhead + propertyFlags
	for _, s := range []string{
		pub.ContentType, pub.ContentEncoding, pub.CorrelationId, pub.ReplyTo, pub.Expiration,
		pub.MessageId, pub.Type, pub.UserId, pub.AppId,
	} {
		if s != "" {
			n += 1 + len(s)
		}
	}
	if len(pub.Headers) > 0 {
		n += tableSize(pub.Headers)
	}
	if pub.DeliveryMode != 0 {
		n++
	}
	if pub.Priority != 0 {
		n++
	}
	if !pub.Timestamp.IsZero() {
		n += 8
	}
	return n
}

// tableSize is the size of t on the wire, its length prefix included. All that was received can be written.
func tableSize(t amqp.Table) int {
	n, _ := amqpvalue.TableSize(t)
	return n
}

// entrySize is what one header adds to a table.
func entrySize(key string, v any) int { return tableSize(amqp.Table{key: v}) - tableSize(nil) }
