package flow

import (
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/message"
)

// States of a trial.
const (
	closed int32 = iota
	pausing
	onTrial
)

// Bounds of each trial. The time begins with the first message that fails or is deferred.
const (
	trialTime     = time.Second
	trialDeferred = 500
	maxDoubled    = 6 // how often fresh is doubled
)

// trial pauses consumption and then tries messages. After each pause that is followed by another, the next is twice as
// long. Every trial has its own state; of those that run at the same time, the smallest limit counts.
//
// Messages that were never tried show whether the app is well again, and each of them loses one retry at most, so a
// trial takes as many as come. Messages that failed before may be bad ones at the head of the queue, and in an outage
// each attempt uses up their retries: a trial takes repeats of them, those that failed least, and defers the others.
type trial struct {
	c       *Control
	reason  Reason
	risk    int32 // messages in flight on trial
	few     int32 // risk where failures park their messages, and how many of these end a trial
	fresh   int32 // failed first attempts that end the first trial, twice as many the next; 0: no number does
	repeats int   // messages tried on trial that failed before
	epoch   time.Time

	maxPause        time.Duration
	maxPauseParking time.Duration // maxPause where failures park their messages

	state    atomic.Int32
	pauses   atomic.Int32 // since it was closed
	failures atomic.Int32 // of messages that were never tried; closed: in a row, which only the breaker counts
	parks    atomic.Bool  // failures have parked their messages since it was closed
	opened   atomic.Int64 // nanoseconds from epoch to the beginning of the last trial, or of its time
	detail   atomic.Pointer[string]
	timer    atomic.Pointer[time.Timer] // of trialTime; nil: the trial has not begun to count

	mu                 sync.Mutex // of messages that failed before; held, the gate is not used
	repeated, deferred int        // of them, on this trial
	least              int        // retries of the deferred ones of this trial; 0: none was deferred
	limitRetries       int        // least of the last trial: those with more are deferred
}

// pause begins the next pause and returns its length, 0 if the state is not from any more.
func (t *trial) pause(from int32, detail string) time.Duration {
	if !t.state.CompareAndSwap(from, pausing) {
		return 0
	}
	t.stop()
	t.detail.Store(&detail)
	longest := t.maxPause
	if t.parks.Load() {
		longest = t.maxPauseParking
	}
	pause := min(time.Second<<min(t.pauses.Add(1)-1, 10), longest)
	t.c.HoldFor(t.reason, pause, detail, t.begin)
	return pause
}

// begin clears the counts, and then begins a trial, unless an answer has closed it meanwhile. The counts come first:
// other goroutines add to them once the state is onTrial.
func (t *trial) begin() {
	t.failures.Store(0)
	t.mu.Lock()
	t.repeated, t.deferred, t.least, t.limitRetries = 0, 0, 0, t.least
	t.mu.Unlock()
	t.opened.Store(int64(time.Since(t.epoch)))
	t.stop() // a late failure may have set the timer
	t.state.CompareAndSwap(pausing, onTrial)
}

func (t *trial) stop() {
	if timer := t.timer.Swap(nil); timer != nil {
		timer.Stop()
	}
}

// defers reports whether m, which failed before, has to return to the queue behind the other messages instead of being
// tried.
func (t *trial) defers(m *message.Message) bool {
	if t.state.Load() != onTrial {
		return false
	}
	t.mu.Lock()
	if t.repeated < t.repeats && (t.limitRetries == 0 || m.RetryCount <= t.limitRetries) {
		t.repeated++
		t.mu.Unlock()
		return false
	}
	t.deferred++
	if t.least == 0 || m.RetryCount < t.least {
		t.least = m.RetryCount
	}
	full := t.deferred >= trialDeferred
	t.mu.Unlock()
	t.count()
	if full {
		t.pause(onTrial, *t.detail.Load())
	}
	return true
}

// failed takes a failed attempt. Messages that are parked over their first one end the trial when they are few: such an
// app costs messages, not retries.
func (t *trial) failed(m *message.Message, status int) {
	if t.state.Load() != onTrial {
		return
	}
	t.count()
	if m.RetryCount > 0 {
		return
	}
	endAfter := t.fresh << min(max(t.pauses.Load()-1, 0), maxDoubled) // none since a restart of the app
	if m.LastAttempt() || slices.Contains(t.c.o.ParkOn, status) {
		t.parks.Store(true)
		endAfter = t.few
	}
	if n := t.failures.Add(1); endAfter > 0 && n >= endAfter {
		t.pause(onTrial, *t.detail.Load())
	}
}

// count begins the time of a trial, once.
func (t *trial) count() {
	if t.timer.Load() != nil {
		return
	}
	timer := time.AfterFunc(trialTime, func() { t.pause(onTrial, *t.detail.Load()) })
	if !t.timer.CompareAndSwap(nil, timer) {
		timer.Stop()
		return
	}
	t.opened.Store(int64(time.Since(t.epoch)))
}

// end closes the trial, and the ramp goes on from few. It returns false if the trial was closed already.
func (t *trial) end() bool {
	if t.state.Load() == closed {
		return false
	}
	t.c.ramp.restart(t.few) // before Lift lets messages through
	t.c.Lift(t.reason)      // before the state changes: the next pause must not lose its hold
	if t.state.Swap(closed) == closed {
		return false
	}
	t.pauses.Store(0)
	t.parks.Store(false)
	t.mu.Lock()
	t.least = 0
	t.mu.Unlock()
	return true
}

// limit is how many messages may be in flight; math.MaxInt32 while there is no trial.
func (t *trial) limit() int32 {
	switch {
	case t.state.Load() != onTrial:
		return math.MaxInt32
	case t.parks.Load():
		return t.few
	}
	return t.risk
}
