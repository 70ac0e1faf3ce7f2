package flow

import (
	"sync"
	"sync/atomic"
	"time"
)

// rampStep is the longest time at one limit: then it doubles, also without an answer. One slow message at the start
// must not delay all others.
const rampStep = 100 * time.Millisecond

// ramp bounds how many messages may be in flight. After an outage it starts at one and grows by one with every answer,
// so that a cold app does not get the whole window at once.
type ramp struct {
	full  int32
	limit atomic.Int32
	grown func() // called when time let the limit grow

	mu    sync.Mutex
	timer *time.Timer
}

func newRamp(full int, grown func()) *ramp {
	r := &ramp{full: int32(full), grown: grown} // #nosec G115 -- configuration bounds it to 10000
	r.limit.Store(1)
	return r
}

// restart begins again at n.
func (r *ramp) restart(n int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limit.Store(n)
	if r.timer == nil && n < r.full {
		r.timer = time.AfterFunc(rampStep, r.step)
	}
}

func (r *ramp) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
}

func (r *ramp) step() {
	r.mu.Lock()
	if r.timer == nil { // stopped while it fired
		r.mu.Unlock()
		return
	}
	n := min(2*r.limit.Load(), r.full)
	r.limit.Store(n)
	if n < r.full {
		r.timer.Reset(rampStep)
	} else {
		r.timer = nil
	}
	r.mu.Unlock()
	r.grown()
}

// grow lets one more in flight.
func (r *ramp) grow() {
	for n := r.limit.Load(); n < r.full && !r.limit.CompareAndSwap(n, n+1); n = r.limit.Load() {
	}
}
