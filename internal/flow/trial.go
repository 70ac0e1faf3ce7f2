package flow

import (
	"math"
	"sync/atomic"
	"time"
)

// States of a trial.
const (
	closed int32 = iota
	pausing
	onTrial
)

// trial pauses consumption and then risks a few messages. After each pause that is followed by another, the next is
// twice as long. Every trial has its own state; of those that run at the same time, the smallest limit counts.
type trial struct {
	c      *Control
	reason Reason
	risk   int32         // messages in flight after a pause
	most   time.Duration // of one pause

	state    atomic.Int32
	pauses   atomic.Int32 // since it was closed
	failures atomic.Int32 // in a row while it is closed, of the trial after a pause; only the breaker counts them
}

// pause begins the next pause and returns its length, 0 if the state is not from any more.
func (t *trial) pause(from int32, detail string) time.Duration {
	if !t.state.CompareAndSwap(from, pausing) {
		return 0
	}
	pause := min(time.Second<<min(t.pauses.Add(1)-1, 10), t.most)
	t.c.HoldFor(t.reason, pause, detail, func() {
		t.failures.Store(0)
		t.state.CompareAndSwap(pausing, onTrial)
	})
	return pause
}

// end closes the trial, and the ramp goes on from the risk. It returns false if the trial was closed already.
func (t *trial) end() bool {
	if t.state.Load() == closed {
		return false
	}
	t.c.ramp.restart(t.risk) // before Lift lets messages through
	t.c.Lift(t.reason)       // before the state changes: the next pause must not lose its hold
	if t.state.Swap(closed) == closed {
		return false
	}
	t.pauses.Store(0)
	return true
}

// limit is how many messages may be in flight.
func (t *trial) limit() int32 {
	if t.state.Load() == onTrial {
		return t.risk
	}
	return math.MaxInt32
}
