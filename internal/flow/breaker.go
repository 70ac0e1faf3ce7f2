package flow

import (
	"sync"
	"sync/atomic"
	"time"
)

// Constants of the breaker.
const (
	// breakerThreshold first attempts must fail in a row, with no answer below 500 in between. Only first attempts count:
	// a few poison messages that are retried again and again must not stop the rest; many different messages that fail one
	// after the other are an outage.
	breakerThreshold = 25
	breakerPauseMin  = time.Second
	breakerPauseMax  = 10 * time.Second
	breakerTrial     = 5 // messages risked after each pause
)

// breaker notices an app that fails everything. Shut, it costs one atomic load per message. Tripped, it pauses, then
// risks a few messages: one answer closes it again, a full trial of failures pauses for twice as long.
type breaker struct {
	threshold int32
	trial     int32
	trip      func(pause time.Duration) // starts a pause that ends in endPause

	failures atomic.Int32 // failed first attempts in a row; in a trial, failures of the trial
	tripped  atomic.Bool

	mu      sync.Mutex
	pause   time.Duration // of the last trip
	inPause bool
}

func newBreaker(concurrency int, trip func(time.Duration)) *breaker {
	return &breaker{
		threshold: int32(max(breakerThreshold, 2*concurrency)), // #nosec G115 -- at most 20000
		trial:     int32(min(breakerTrial, concurrency)),       // #nosec G115 -- at most 5
		trip:      trip,
	}
}

// success counts an answer below 500. It returns true if that closed a tripped breaker.
func (b *breaker) success() bool {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if !b.tripped.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inPause { // a straggler from before the pause proves that the app is back, but the pause is already running
		return false
	}
	b.pause = 0
	return b.tripped.CompareAndSwap(true, false)
}

// failure counts a 5xx, timeout or reset. first is true for a message's first attempt.
func (b *breaker) failure(first bool) {
	if !b.tripped.Load() {
		if first && b.failures.Add(1) >= b.threshold {
			b.open()
		}
		return
	}
	if b.failures.Add(1) >= b.trial {
		b.open()
	}
}

func (b *breaker) open() {
	b.mu.Lock()
	if b.inPause {
		b.mu.Unlock()
		return
	}
	b.pause = min(max(2*b.pause, breakerPauseMin), breakerPauseMax)
	b.inPause = true
	b.tripped.Store(true)
	b.failures.Store(0)
	pause := b.pause
	b.mu.Unlock()
	b.trip(pause) // locks the gate, which locks this breaker when the pause ends
}

// endPause begins a trial.
func (b *breaker) endPause() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inPause = false
	b.failures.Store(0)
}
