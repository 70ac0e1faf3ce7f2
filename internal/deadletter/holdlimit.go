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

// reopenTimeout is how long an operation that has begun waits for another one that came in between.
const reopenTimeout = 2 * time.Minute

// errHoldLimit ends a pass: everything has to be requeued before the operation goes on.
var errHoldLimit = errors.New("messages have been held for long enough")

// holdLimitReached reports whether the pass has to end before what is due after that time. It returns false until the
// pass has read a new message.
func (o *operation) holdLimitReached(due time.Duration) bool {
	return o.hold > 0 && o.newly && time.Since(o.reader.since)+due > o.hold
}

// reopen begins another pass. Messages that were read and stay are at the head of the queue again. Messages that were
// published to the queue since the start are behind all others; where requeuesToTail is true they are in front, and are
// moved again in place of as many others.
func (o *operation) reopen(ctx context.Context) error {
	if err := o.putBack(); err != nil {
		return err
	}
	if err := pause(ctx, o.due()); err != nil {
		return err
	}
	r, err := o.q.openRecycled(ctx)
	// another read is under way
	for limit := time.Now().Add(reopenTimeout); errors.Is(err, ErrInUse) && time.Now().Before(limit); {
		r, err = o.q.openRecycled(ctx)
	}
	if err != nil {
		return err
	}
	p := o.progress()
	o.reader, o.known, o.newly = r, p.Scanned-p.Done, false
	r.total = min(r.total, p.Total-p.Done)
	return nil
}

// putBack closes the reader, once.
func (o *operation) putBack() error {
	r := o.reader
	if o.reader = nil; r == nil {
		return nil
	}
	if err := r.close(); err != nil {
		return fmt.Errorf("requeue the remaining messages of queue %q: %w", o.q.name, err)
	}
	return nil
}

// due is how long it takes until the rate lets the next message go.
func (o *operation) due() time.Duration {
	now := time.Now()
	next := o.rate.ReserveN(now, 1)
	defer next.CancelAt(now)
	return next.DelayFrom(now)
}
