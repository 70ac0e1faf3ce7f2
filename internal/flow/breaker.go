package flow

import (
	"sync/atomic"
	"time"

	"github.com/sethvargo/go-retry"
)

// Constants of the breaker.
const (
	// breakerThreshold first attempts must fail in a row, with no answer below 500 in between. Only first attempts count:
	// a few poison messages that are retried again and again must not stop the rest; many different messages that fail one
	// after the other are an outage.
	breakerThreshold = 25
	breakerPauseMax  = 10 * time.Second
	breakerTrial     = 5 // messages risked after each pause
)

// States of the breaker.
const (
	closed int32 = iota
	pausing
	onTrial
)

// breaker notices an app that fails everything. Shut, it costs two atomic loads per message. Tripped, it pauses, then
// risks a few messages: one answer closes it again, a full trial of failures pauses for twice as long.
type breaker struct {
	threshold int32
	trial     int32
	trip      func(pause time.Duration) // starts a pause that ends in endPause

	state    atomic.Int32
	failures atomic.Int32  // failed first attempts in a row; in a trial, failures of the trial
	pauses   retry.Backoff // until it closes; it belongs to the goroutine that begins a pause
}

func newBreaker(concurrency int, trip func(time.Duration)) *breaker {
	return &breaker{
		threshold: int32(max(breakerThreshold, 2*concurrency)), // #nosec G115 -- at most 20000
		trial:     int32(min(breakerTrial, concurrency)),       // #nosec G115 -- at most 5
		trip:      trip,
	}
}

// success counts an answer below 500. It returns true if that closed a tripped breaker. A straggler from before the
// pause proves that the app is back, but the pause is already running.
func (b *breaker) success() bool {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	return b.state.Load() == onTrial && b.state.CompareAndSwap(onTrial, closed)
}

// failure counts a 5xx, timeout or reset. first is true for a message's first attempt.
func (b *breaker) failure(first bool) {
	state, limit := b.state.Load(), b.trial
	if state == closed {
		limit = b.threshold
	}
	if state == pausing || state == closed && !first || b.failures.Add(1) < limit {
		return
	}
	if !b.state.CompareAndSwap(state, pausing) {
		return
	}
	if state == closed {
		b.pauses = pausesUpTo(breakerPauseMax)
	}
	pause, _ := b.pauses.Next()
	b.trip(pause)
}

// endPause begins a trial.
func (b *breaker) endPause() {
	b.failures.Store(0)
	b.state.Store(onTrial)
}

// pausesUpTo returns pauses that double from a second on.
func pausesUpTo(most time.Duration) retry.Backoff {
	return retry.WithCappedDuration(most, retry.NewExponential(time.Second))
}
