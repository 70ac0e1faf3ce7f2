package broker

import (
	"fmt"
	"slices"

	"sidecar/internal/amqpwire"
)

// returned is a message that the broker returned and whose confirm has not come yet. basic.return carries no delivery
// tag, so a return is matched by content. Among identical messages the first confirmed is reported unroutable; as many
// are reported as were returned, no matter whose confirm comes first, or never.
type returned struct {
	print amqpwire.Fingerprint
	why   *ReturnedError
}

// returnOf is why a message that is confirmed was returned; nil if it was not. The broker returns a message before it
// confirms it. c.mu is locked.
func (c *Stream) returnOf(r *Receipt) error {
	if len(c.back) > 0 {
		f := r.fingerprint()
		if i := slices.IndexFunc(c.back, func(b returned) bool { return b.print == f }); i >= 0 {
			why := c.back[i].why
			c.back = slices.Delete(c.back, i, i+1)
			return why
		}
	}
	return r.back
}

// returned keeps a return until a message that equals it is confirmed. After a return that equals none of the messages
// under way the outcome of each of them is unknown.
func (c *Stream) returned(f amqpwire.Fingerprint, why *ReturnedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unmatched := 0
	for _, r := range c.inflight {
		switch {
		case r == nil:
		case c.window == 1:
			r.back = why
			return
		case r.fingerprint() == f:
			unmatched++
		}
	}
	for _, b := range c.back {
		if b.print == f {
			unmatched--
		}
	}
	if unmatched > 0 {
		c.back = append(c.back, returned{f, why})
		return
	}
	for _, r := range c.inflight {
		if r == nil {
			continue
		}
		r.back = fmt.Errorf("%w: another message than those under way was returned: %w", ErrUnknown, &strayReturn{why})
	}
}

// strayReturn hides that a message was unroutable: it is not known which.
type strayReturn struct{ why *ReturnedError }

func (e *strayReturn) Error() string { return e.why.Error() }

// fingerprint returns the fingerprint of the message. The stream is locked.
func (r *Receipt) fingerprint() amqpwire.Fingerprint {
	if r.print == nil {
		f := amqpwire.FingerprintOf(r.pub.Exchange, r.pub.Key, &r.pub.Msg)
		r.print = &f
	}
	return *r.print
}
