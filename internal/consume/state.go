package consume

import "sidecar/internal/broker"

// atOnce is how many messages can be POSTed at once.
func (c *Consumer) atOnce() int { return c.o.Concurrency * max(1, c.o.Batch.Size) }

// Inflight is how many messages are being POSTed.
func (c *Consumer) Inflight() int64 { return max(0, c.counts.inflight.Load()) }

// Delayed is how many messages are held before a requeue.
func (c *Consumer) Delayed() int64 { return c.counts.delayed.Load() }

// Received is how many deliveries there have been.
func (c *Consumer) Received() int64 { return c.counts.received.Load() }

// Active reports whether a consumer is registered with the broker.
func (c *Consumer) Active() bool { return c.active.registered.Load() != nil }

// Registered is the consumer that is registered with the broker and not being cancelled; nil: none.
func (c *Consumer) Registered() *broker.Consumer { return c.active.lasting.Load() }

// Begun reports whether a consumer is registered, or was on this session and is again as soon as the gate is open.
func (c *Consumer) Begun() bool { return c.active.begun.Load() }

// Waiting is how many messages this process has rejected that the service's queue still delays; ok is false where that
// delays none.
func (c *Consumer) Waiting() (n int, ok bool) { return c.memory.Waiting() }

// Forget forgets the messages of the service's queue, which was deleted. It returns what Waiting was.
func (c *Consumer) Forget() (waited int, ok bool) { return c.memory.Forget() }
