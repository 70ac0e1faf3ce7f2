package deadletter

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// holding is how long messages are held at a time. The broker closes a channel that settles one of them later than
// its consumer_timeout, 30 minutes by default.
const holding = 10 * time.Minute

// waiting is how long an operation that has begun waits for another one that came in between.
const waiting = 2 * time.Minute

// errHoldLimit ends a pass: everything has to be requeued before the operation goes on.
var errHoldLimit = errors.New("messages have been held for long enough")

// holdLimitReached reports whether the pass has to end before something that is due in that time. It returns false
// until the pass has read a new message.
func (v *operation) holdLimitReached(ahead time.Duration) bool {
	return v.hold > 0 && v.newly > 0 && time.Since(v.w.since)+ahead > v.hold
}

// reopen begins another pass. Messages that were read and stay are at the head of the queue again. Messages that were
// published to the queue since the start are behind all others; where requeuesToTail is true they are in front, and are
// moved again in place of as many others.
func (v *operation) reopen(ctx context.Context) error {
	if err := v.putBack(); err != nil {
		return err
	}
	if err := v.pace.rest(ctx); err != nil {
		return err
	}
	w, err := v.q.openRecycled(ctx)
	// another read is under way
	for limit := time.Now().Add(waiting); errors.Is(err, ErrInUse) && time.Now().Before(limit); {
		w, err = v.q.openRecycled(ctx)
	}
	if err != nil {
		return err
	}
	p := v.progress()
	v.w, v.known, v.newly = w, p.Scanned-p.Done, 0
	w.total = min(w.total, p.Total-p.Done)
	return nil
}

// putBack closes the reader, once.
func (v *operation) putBack() error {
	w := v.w
	if v.w = nil; w == nil {
		return nil
	}
	if err := w.close(); err != nil {
		return fmt.Errorf("requeue the remaining messages of queue %q: %w", v.q.name, err)
	}
	return nil
}

// rateLimit spreads messages over time. The zero rateLimit does not.
type rateLimit struct {
	every time.Duration
	next  time.Time
}

func newRateLimit(perSecond float64) rateLimit {
	if perSecond <= 0 {
		return rateLimit{}
	}
	return rateLimit{every: time.Duration(float64(time.Second) / perSecond), next: time.Now()}
}

// due is how long it takes until the next message may go.
func (p *rateLimit) due() time.Duration { return max(0, time.Until(p.next)) }

// rest returns when the next message may go.
func (p *rateLimit) rest(ctx context.Context) error {
	if d := p.due(); d > 0 {
		return pause(ctx, d)
	}
	return nil
}

// wait is rest for a message that goes then. Time that was lost is not made up for: a limit is a limit.
func (p *rateLimit) wait(ctx context.Context) error {
	if p.every == 0 {
		return nil
	}
	if now := time.Now(); p.next.Before(now) {
		p.next = now
	}
	if err := p.rest(ctx); err != nil {
		return err
	}
	p.next = p.next.Add(p.every)
	return nil
}
