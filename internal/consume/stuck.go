package consume

import "sidecar/internal/flow"

// stuck counts the messages whose park or retry publish has failed and is tried again. They hold prefetch slots; once
// they hold all of them nothing can move, and that is a pause to be seen, not a silence.
func (c *Consumer) stuck(change int) {
	c.stuckMu.Lock()
	defer c.stuckMu.Unlock()
	c.stuckNow += change
	if c.stuckNow >= c.o.Prefetch {
		if c.o.Flow.Hold(flow.Publishing, "every message in hand waits to be parked or republished") {
			c.o.Logger.Error("paused", "reason", string(flow.Publishing), "queue", c.o.Plan.Queue, "stuck", c.stuckNow)
		}
	} else if c.o.Flow.Lift(flow.Publishing) {
		c.o.Logger.Info("resumed", "reason", string(flow.Publishing), "queue", c.o.Plan.Queue)
	}
}

// Stuck is how many messages wait for a park or retry publish that has failed at least once.
func (c *Consumer) Stuck() int {
	c.stuckMu.Lock()
	defer c.stuckMu.Unlock()
	return c.stuckNow
}
