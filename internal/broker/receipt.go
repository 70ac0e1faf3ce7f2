package broker

import (
	"context"
	"fmt"
	"time"

	"sidecar/internal/amqpwire"
	"sidecar/internal/message"
)

// blockedPatience is how long a confirm is waited for while an alarm blocks the connection: what the broker had read by
// then it still confirms, what it has not it may read when the alarm is over.
const blockedPatience = 2 * time.Second

// Receipt is one message under way. Wait has to be called once for each.
type Receipt struct {
	stream *Stream
	pub    *message.Publication
	sent   time.Time

	// What follows is guarded by the lock of the stream.
	print    *amqpwire.Fingerprint // nil until it is needed
	back     error                 // why this message was returned, or may have been
	givenUp  bool                  // the wait has ended without the broker's answer
	answered bool                  // by the broker, or by the end of the stream
	err      error                 // of the answer
	answer   chan struct{}         // closed by the answer; nil: no goroutine waits for it
}

// Wait returns nil when the broker has the message and has routed it. The errors are ErrUnroutable, ErrNacked and
// ErrUnknown; a channel that the broker closes over one message, which the text then says, leaves all that were under
// way unknown.
func (r *Receipt) Wait(ctx context.Context) error {
	if err := r.await(ctx); err != nil {
		return failed(r.pub, err)
	}
	return nil
}

func (r *Receipt) await(ctx context.Context) error {
	c := r.stream
	err := c.wait(ctx, r)
	if err == nil {
		c.session.metrics.confirmed(r.pub.Kind, time.Since(r.sent))
	}
	return err
}

// wait returns the answer to a message.
func (c *Stream) wait(ctx context.Context, r *Receipt) error {
	answer := c.awaited(r)
	if answer == nil {
		return r.err
	}
	s := c.session
	for {
		blocked, changed := s.watchBlocked()
		var patience <-chan time.Time
		if blocked {
			t := time.NewTimer(s.patience())
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-answer:
			return r.err
		case <-changed:
			continue
		case <-patience:
		case <-ctx.Done():
		}
		switch {
		case !c.giveUp(r): // the answer came at the same moment, and counts
			return r.err
		case blocked:
			return fmt.Errorf("%w: %w", ErrUnknown, ErrBlocked)
		}
		return fmt.Errorf("%w: no confirm in time: %w", ErrUnknown, context.Cause(ctx))
	}
}

// awaited returns a channel that is closed by the answer to a message; nil: it was answered.
func (c *Stream) awaited(r *Receipt) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.answered {
		return nil
	}
	r.answer = make(chan struct{})
	return r.answer
}

// giveUp ends the wait for a message without an answer from the broker; it returns false if there is one. Nothing more
// is sent on this channel. The stream keeps the message until the channel ends, because it may still be returned.
func (c *Stream) giveUp(r *Receipt) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.answered {
		return false
	}
	c.retired.Store(true)
	r.givenUp = true
	r.fingerprint() // now: its owner may change the message from here on
	r.pub = &message.Publication{Exchange: r.pub.Exchange, Key: r.pub.Key}
	c.slots <- struct{}{}
	c.waits.Done()
	return true
}
