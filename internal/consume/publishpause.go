package consume

import "sidecar/internal/flow"

// addUnpublished counts the messages whose park or retry publish has failed and is tried again. They hold prefetch
// slots; when they hold all of them no message moves, and the gate is closed so that this is visible.
func (c *Consumer) addUnpublished(change int) {
	c.unpublishedMu.Lock()
	defer c.unpublishedMu.Unlock()
	c.unpublished += change
	if c.unpublished >= c.o.Prefetch {
		if c.o.Flow.Hold(flow.Publishing, "every message in flight waits to be parked or republished") {
			c.o.Logger.Error("paused", "reason", string(flow.Publishing), "waiting", c.unpublished)
		}
	} else if c.o.Flow.Lift(flow.Publishing) {
		c.o.Logger.Info("resumed", "reason", string(flow.Publishing))
	}
}

// Unpublished is how many messages wait for a park or retry publish that has failed at least once.
func (c *Consumer) Unpublished() int {
	c.unpublishedMu.Lock()
	defer c.unpublishedMu.Unlock()
	return c.unpublished
}
