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

// holdLimitReached reports whether the pass has to end before the next message may go. It returns false until the pass
// has read a new message.
func (v *operation) holdLimitReached() bool {
	return v.hold > 0 && v.newly && time.Since(v.w.since)+v.rate.due() > v.hold
}

// reopen begins another pass. Messages that were read and stay are at the head of the queue again. Messages that were
// published to the queue since the start are behind all others; where requeuesToTail is true they are in front, and are
// moved again in place of as many others.
func (v *operation) reopen(ctx context.Context) error {
	if err := v.putBack(); err != nil {
		return err
	}
	if err := pause(ctx, v.rate.due()); err != nil {
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
	v.w, v.known, v.newly = w, p.Scanned-p.Done, false
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

// due is how long it takes until the next message may go.
func (r *rateLimit) due() time.Duration { return max(0, time.Until(r.next)) }

// wait returns when the next message may go, which goes then. Time that was lost is not made up for: a limit is a
// limit.
func (r *rateLimit) wait(ctx context.Context) error {
	if r.every == 0 {
		return nil
	}
	if now := time.Now(); r.next.Before(now) {
		r.next = now
	}
	if err := pause(ctx, r.due()); err != nil {
		return err
	}
	r.next = r.next.Add(r.every)
	return nil
}
