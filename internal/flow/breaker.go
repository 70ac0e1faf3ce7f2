package flow

import (
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/message"
)

// Constants of the breaker.
const (
	// breakerThreshold first attempts must fail in a row, with no answer below 500 or with a disposition in between. Only
	// first attempts count, but see breaker.round: a few poison messages that are retried again and again must not stop
	// the rest; many different messages that fail one after the other are an outage.
	breakerThreshold = 25
	breakerRound     = time.Second // at least, see breaker.round
	// breakerPauseMax is also how long a good message waits at most when there were only bad ones before.
	breakerPauseMax  = 3 * time.Second
	breakerLossesMax = 10 * time.Second // breakerPauseMax where failures park their messages
	breakerRisk      = 10
	breakerFew       = 5
	breakerRepeats   = 2
)

// breaker notices an app that fails everything. Closed, it costs two atomic loads per message. Tripped, it pauses, then
// tries messages: one answer closes it again, failures alone pause for twice as long.
type breaker struct {
	trial
	threshold int32

	again   atomic.Bool // a message that failed before has failed since the last answer; it spares success the mutex
	againMu sync.Mutex
	run     map[uint64]struct{} // hashes of these messages, at most threshold; nil: none
	since   time.Time           // when the first of them failed
}

func newBreaker(c *Control) *breaker {
	n := int32(c.o.Concurrency) // #nosec G115 -- at most 10000
	return &breaker{
		trial: trial{
			c: c, reason: Breaker, risk: min(breakerRisk, n), few: min(breakerFew, n), repeats: breakerRepeats,
			maxPause: breakerPauseMax, maxPauseParking: breakerLossesMax,
		},
		threshold: max(breakerThreshold, 2*n),
	}
}

// success counts an answer of an app that is alive. During the first pause it may be of an attempt from before the
// outage; during a later one an attempt of the trial took longer than the trial.
func (b *breaker) success() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if b.again.Load() {
		b.againMu.Lock()
		b.again.Store(false)
		b.run = nil
		b.againMu.Unlock()
	}
	if state := b.state.Load(); (state == onTrial || state == pausing && b.pauses.Load() > 1) && b.end() {
		b.c.o.Logger.Info("breaker closed", "url", b.c.o.URL)
	}
}

// failure counts a 5xx, timeout or reset.
func (b *breaker) failure(m *message.Message, status int) {
	switch b.state.Load() {
	case onTrial:
		b.failed(m, status)
	case closed:
		if m.RetryCount > 0 && !b.round(m) || m.RetryCount == 0 && b.failures.Add(1) < b.threshold {
			return
		}
		const detail = "the app fails everything"
		if pause := b.pause(closed, detail); pause > 0 {
			b.c.o.Logger.Warn("paused", "reason", string(Breaker), "url", b.c.o.URL, "for", pause.String(), "detail", detail)
		}
	}
}

// round takes the failure of a message that failed before, and reports whether so many different ones have failed since
// the last answer that they are an outage, and one of them twice: after a restart in an outage there are no others.
func (b *breaker) round(m *message.Message) bool {
	b.againMu.Lock()
	defer b.againMu.Unlock()
	if b.run == nil {
		b.run, b.since = map[uint64]struct{}{}, time.Now()
		b.again.Store(true)
	}
	id := identify(m)
	if len(b.run) < int(b.threshold) {
		b.run[id] = struct{}{}
		return false
	}
	_, known := b.run[id]
	return known && time.Since(b.since) >= breakerRound
}
