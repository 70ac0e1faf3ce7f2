package broker

import "sidecar/internal/amqpwire"

type (
	// Delivery is one received message.
	Delivery = amqpwire.Delivery
	// Deliveries are the received messages of a Subscription.
	Deliveries = amqpwire.Deliveries
	// Spool holds the bodies of large messages in files.
	Spool = amqpwire.Spool
)

// NewSpool returns a spool in dir that may use up to limit bytes of disk.
func NewSpool(dir string, limit int64) *Spool { return amqpwire.NewSpool(dir, limit) }
