package consume

import (
	"sync"

	"sidecar/internal/flow"
	"sidecar/internal/telemetry"
)

// unpublished counts the messages that wait for a park or retry publish that has failed at least once.
type unpublished struct {
	mu  sync.Mutex
	n   int
	log telemetry.Throttle // of each try that failed
}

// addUnpublished counts the messages whose park or retry publish has failed and is tried again. They hold prefetch
// slots; when they hold all of them no message moves, and the gate is closed so that this is visible.
// In order the gate stays open, see order.report.
func (c *Consumer) addUnpublished(change int) {
	if c.order != nil {
		c.order.mu.Lock()
		defer c.order.unlock() // it decides
	}
	c.unpublished.mu.Lock()
	defer c.unpublished.mu.Unlock()
	c.unpublished.n += change
	switch {
	case c.order != nil:
	case c.unpublished.n >= c.o.Prefetch:
		if c.o.Flow.Hold(flow.Publishing, "every message in flight waits to be parked or republished") {
			c.o.Logger.Error("paused", "reason", string(flow.Publishing), "waiting", c.unpublished.n)
		}
	case c.o.Flow.Lift(flow.Publishing):
		c.o.Logger.Info("resumed", "reason", string(flow.Publishing))
	}
}

// Unpublished is how many messages wait for a park or retry publish that has failed at least once.
func (c *Consumer) Unpublished() int {
	c.unpublished.mu.Lock()
	defer c.unpublished.mu.Unlock()
	return c.unpublished.n
}
