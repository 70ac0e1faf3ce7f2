package consume

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/flow"
)

// refusedAgain is how long after a log line about a refused queue the next one comes, while the queue stays refused for
// the same reason.
const refusedAgain = 5 * time.Minute

// refusal is the last log line about a refused queue; of Serve and Refused.
type refusal struct {
	at  time.Time
	why string
}

// refused shows in the gate that err kept a consumer of the queue from beginning. The gate stays open: the broker does
// not report that the queue can be consumed again, so it is tried. An error of a session that was lost for another
// reason is not about the queue.
func (c *Consumer) refused(ctx context.Context, err error) {
	if ctx.Err() == nil || errors.Is(err, broker.ErrUnavailable) {
		c.Refused(err)
	}
}

// untried takes the reason Queue away while the gate is shut: no consumer is tried then, so the reason would stay when
// the queue can be consumed again. The next try shows it again.
func (c *Consumer) untried() {
	if !c.o.Flow.Open() && c.o.Flow.Lift(flow.Queue) {
		c.o.Logger.Info("queue not tried")
	}
}

// Refused is called with an error that keeps the queue from being consumed, until a consumer begins. One call of Serve
// or Refused at a time.
func (c *Consumer) Refused(err error) {
	why := err.Error()
	if r, ok := errors.AsType[*broker.RefusedError](err); ok {
		why = fmt.Sprintf("%d %s", r.Code, r.Text)
	}
	fresh := c.o.Flow.Show(flow.Queue, fmt.Sprintf("queue %q cannot be consumed: %s", c.o.Plan.Queue, why))
	if fresh || why != c.refusal.why || time.Since(c.refusal.at) > refusedAgain {
		c.refusal.at, c.refusal.why = time.Now(), why
		c.o.Logger.Warn("paused", "reason", string(flow.Queue), "error", why)
	}
}

// register records the consumer that is registered; nil: none. With one the queue is not refused any more.
func (c *Consumer) register(consumer *broker.Consumer) {
	if consumer != nil {
		if c.o.Flow.Lift(flow.Queue) {
			c.o.Logger.Info("resumed", "reason", string(flow.Queue))
		}
		c.active.begun.Store(true)
	}
	c.active.registered.Store(consumer)
	c.active.lasting.Store(consumer)
	c.o.Flow.Nudge() // releases may wait for it, see retreat
}
