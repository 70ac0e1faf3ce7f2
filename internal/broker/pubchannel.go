package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// pubChannel carries one publish at a time, so whatever is confirmed, nacked, returned or refused on it is that one: no
// message needs a header to tell returns apart.
type pubChannel struct {
	session  *Session
	ch       *amqp.Channel
	confirms *confirming
	back     atomic.Pointer[ReturnedError] // the message was returned; set before its confirm is read
	closes   chan *amqp.Error
	answered bool // the broker said something about a publish
	spent    bool // must not be used again
}

func openPubChannel(s *Session) (*pubChannel, error) {
	c := &pubChannel{session: s}
	err := s.doPatiently("open a channel", func() (err error) {
		if c.ch, err = s.conn.Channel(); err != nil {
			return err
		}
		c.confirms = s.wire.intake.confirm(c.ch, func(_ fingerprint, why *ReturnedError) { c.back.Store(why) })
		c.closes = c.ch.NotifyClose(make(chan *amqp.Error, 1)) // buffered: the library sends from its reading goroutine
		return c.ch.Confirm(false)
	})
	return c, err
}

func (c *pubChannel) publish(ctx context.Context, pub *Publication) error {
	msg := pub.Msg
	msg.DeliveryMode = amqp.Persistent
	c.back.Store(nil)
	c.confirms.published.Add(1)
	stop := context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })
	confirm, err := c.ch.PublishWithDeferredConfirm(pub.Exchange, pub.Key, true, false, msg)
	stop()
	if err != nil {
		c.spent = true
		return c.unsent(err)
	}
	select {
	case <-confirm.Done():
	case <-ctx.Done():
		select {
		case <-confirm.Done(): // both: the confirm counts
		default:
			c.spent = true
			return fmt.Errorf("%w: no confirm in time: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	if !confirm.Acked() {
		return c.failure()
	}
	c.answered = true
	// The broker returns a message before it confirms it, so a return is here by now.
	if back := c.back.Load(); back != nil {
		return back
	}
	return nil
}

// close ends the channel. It may take as long as the broker does.
func (c *pubChannel) close() {
	_ = c.session.doPatiently("close a channel", c.ch.Close)
	c.session.wire.intake.unconfirm(c.confirms)
}

// unsent judges a failed write. The library says ErrClosed before the last frame was written, so the broker cannot have
// the message; after any other error it may.
func (c *pubChannel) unsent(err error) error {
	if errors.Is(err, amqp.ErrClosed) {
		if ended := c.session.Err(); ended != nil {
			return ended
		}
		return fmt.Errorf("%w: the channel was closed", ErrDisconnected)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, c.session.explain(err))
}

// failure tells a nack from the end of the channel: the library reports both as a negative confirm, but announces the
// end first.
func (c *pubChannel) failure() error {
	select {
	case e, ok := <-c.closes:
		c.spent = true
		if ok && e.Server && e.Recover {
			c.answered = true
			return &RefusedError{Code: e.Code, Text: e.Reason}
		}
		if ok {
			return fmt.Errorf("%w: %w", ErrUnknown, c.session.explain(e))
		}
		return fmt.Errorf("%w: the channel was closed before the confirm", ErrUnknown)
	default:
		c.answered = true
		return ErrNacked
	}
}
