package consume

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// missingHold is how long a message whose body fitted neither into memory nor into a file is held at most: a file may
// have room by then, which nothing announces.
const missingHold = 30 * time.Second

// large is about such messages.
type large struct {
	turn chan struct{}             // capacity 1, see awaitMemory
	last atomic.Pointer[oversized] // the last one
	log  telemetry.Throttle
}

// oversized is the warning about such a message until its next delivery.
type oversized struct {
	until time.Time
	text  string
}

// holdMissing requeues such a message when there is memory for it, and reports it.
func (c *Consumer) holdMissing(d delivery) {
	c.large.log.Do(func(suppressed int) {
		c.o.Logger.Error("no memory for a message", "message_id", d.MessageId, "size", d.Missing,
			"error", d.MissingWhy, "retry_in", c.o.MissingHold, "suppressed", suppressed)
	})
	c.large.last.Store(&oversized{until: time.Now().Add(2 * c.o.MissingHold), text: fmt.Sprintf(
		"there is no memory for a message of %d bytes (SIDECAR_MEMORY), and no file for it either: %v; it is tried again "+
			"when memory is free, after %v at the latest",
		d.Missing, d.MissingWhy, c.o.MissingHold)})
	var a attempt
	by, _ := c.guard(&a, func() topology.Settlement {
		c.decode(&a, d)                                   // it returns as it came
		if !errors.Is(d.MissingWhy, broker.ErrNoMemory) { // without headers the message's trace is not known
			c.trace(&a)
		}
		return c.requeued(message.ReasonTooLarge, topology.SettleRoom, c.o.MissingHold)
	})
	d.session.settle(a, by)
}

// Oversized returns a warning while there is a message for which there is neither memory nor a file; "" otherwise.
func (c *Consumer) Oversized() string {
	if o := c.large.last.Load(); o != nil && time.Now().Before(o.until) {
		return o.text
	}
	return ""
}
