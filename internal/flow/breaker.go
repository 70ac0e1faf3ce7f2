package flow

import "time"

// Constants of the breaker.
const (
	// breakerThreshold first attempts must fail in a row, with no answer below 500 or with a disposition in between. Only
	// first attempts count: a few poison messages that are retried again and again must not stop the rest; many different
	// messages that fail one after the other are an outage.
	breakerThreshold = 25
	breakerPauseMax  = 10 * time.Second
	breakerTrial     = 5 // messages risked after each pause
)

// breaker notices an app that fails everything. Closed, it costs two atomic loads per message. Tripped, it pauses, then
// risks a few messages: one answer closes it again, a full trial of failures pauses for twice as long.
type breaker struct {
	trial
	threshold int32
}

func newBreaker(c *Control) *breaker {
	n := int32(c.o.Concurrency) // #nosec G115 -- at most 10000
	return &breaker{
		trial:     trial{c: c, reason: Breaker, risk: min(breakerTrial, n), most: breakerPauseMax},
		threshold: max(breakerThreshold, 2*n),
	}
}

// success counts an answer of an app that is alive. A straggler from before the pause proves that the app is back, but
// the pause is already running.
func (b *breaker) success() {
	if b.failures.Load() != 0 {
		b.failures.Store(0)
	}
	if b.state.Load() == onTrial && b.end() {
		b.c.o.Logger.Info("breaker closed", "url", b.c.o.URL)
	}
}

// failure counts a 5xx, timeout or reset. first is true for a message's first attempt.
func (b *breaker) failure(first bool) {
	state, limit := b.state.Load(), b.risk
	if state == closed {
		limit = b.threshold
	}
	if state == pausing || state == closed && !first || b.failures.Add(1) < limit {
		return
	}
	const detail = "the app fails everything"
	if pause := b.pause(state, detail); pause > 0 {
		b.c.o.Logger.Warn("paused", "reason", string(Breaker), "url", b.c.o.URL, "for", pause.String(), "detail", detail)
	}
}
