package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/message"
)

// blockedPatience is how long a confirm is waited for while an alarm blocks the connection: what the broker had read by
// then it still confirms, what it has not it may read when the alarm is over.
const blockedPatience = 2 * time.Second

// Receipt is one message under way. Wait has to be called once for each.
type Receipt struct {
	stream  *Stream
	pub     *message.Publication
	confirm *amqp.DeferredConfirmation
	sent    time.Time
	print   *amqpwire.Fingerprint // nil until it is needed
	givenUp bool                  // the wait has ended without the broker's answer
	back    error                 // why this message was returned, or may have been
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
	defer c.forget(r)
	if err := r.confirmed(ctx); err != nil {
		return err
	}
	if !r.confirm.Acked() {
		// The library reports a nack and the end of the channel as a negative confirm, but announces the end first.
		why := c.reason()
		switch {
		case why == nil:
			now := time.Now()
			c.nacked.CompareAndSwap(nil, &now)
			return ErrNacked
		case errors.Is(why, ErrRefused) && c.window == 1: // no other message can be meant
			return why
		}
		return fmt.Errorf("%w: %w", ErrUnknown, why)
	}
	if err := c.returnOf(r); err != nil {
		return err
	}
	c.session.metrics.confirmed(r.pub.Kind, time.Since(r.sent))
	return nil
}

// confirmed waits for the broker's answer.
func (r *Receipt) confirmed(ctx context.Context) error {
	s := r.stream.session
	for {
		blocked, changed := s.watchBlocked()
		var patience <-chan time.Time
		if blocked {
			t := time.NewTimer(s.patience())
			defer t.Stop()
			patience = t.C
		}
		select {
		case <-r.confirm.Done():
			return nil
		case <-changed:
			continue
		case <-patience:
		case <-ctx.Done():
		}
		select {
		case <-r.confirm.Done(): // both: the confirm counts
			return nil
		default:
		}
		r.stream.giveUp(r)
		if blocked {
			return fmt.Errorf("%w: %w", ErrUnknown, ErrBlocked)
		}
		return fmt.Errorf("%w: no confirm in time: %w", ErrUnknown, context.Cause(ctx))
	}
}

// giveUp ends the wait for a message without an answer from the broker. Nothing more is sent on this channel: the
// client library keeps the message until the channel ends, and so does the stream, because the message may still be
// returned.
func (c *Stream) giveUp(r *Receipt) {
	c.retired.Store(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	r.givenUp = true
	r.fingerprint() // now: its owner may change the message from here on
	r.pub = &message.Publication{Exchange: r.pub.Exchange, Key: r.pub.Key}
}

// forget ends the wait for a message. One that was given up is still under way: it may be returned.
func (c *Stream) forget(r *Receipt) {
	if !r.givenUp {
		c.mu.Lock()
		delete(c.inflight, r)
		c.mu.Unlock()
	}
	c.slots <- struct{}{}
	c.waits.Done()
}
