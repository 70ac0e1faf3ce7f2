package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// Try asks the broker whether it would accept a message from this user: it publishes the message in a transaction and
// rolls that back, so nothing has happened afterwards. It does not say whether the message would be routed. The errors
// are ErrInvalid when the cause is in the message, such as a body larger than the broker accepts; ErrRefused when the
// cause would affect other messages too, such as a missing right; ErrBlocked, which may have cost the connection; and
// those of the connection.
func (c *Stream) Try(ctx context.Context, pub *Publication) error {
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, c.session.FrameMax()); err != nil {
		return err
	}
	if c.session.Blocked() {
		return ErrBlocked
	}
	// it would not answer until the alarm is over
	stop := c.whileBlocked(c.session.options.blockedPatience, func() { c.session.fail(ErrBlocked) })
	defer stop()
	return c.try(pub, func(name string, fn func() error) error { return c.session.Do(ctx, name, fn) })
}

func (c *Stream) try(pub *Publication, do caller) error {
	var ch *amqp.Channel // of its own: the broker closes it over a refusal
	err := do("open a channel", func() (err error) {
		ch, err = c.session.conn.Channel()
		return err
	})
	if err != nil {
		return err
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = do("try a message", func() error {
		if err := ch.Tx(); err != nil {
			return err
		}
		// The broker checks a message when it arrives, not only when it is committed.
		if err := ch.PublishWithContext(context.Background(), pub.Exchange, pub.Key, false, false, pub.Msg); err != nil {
			return err
		}
		if err := ch.TxRollback(); err != nil {
			return err
		}
		return ch.Close()
	})
	if errors.Is(err, amqp.ErrClosed) { // the refusal came before the next call
		if e := <-closes; e != nil {
			err = c.session.endError(e)
		}
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == amqp.PreconditionFailed {
		return fmt.Errorf("%w: %w", ErrInvalid, refused)
	}
	return err
}

// whileBlocked calls then, once, when the connection has been blocked for so long.
func (c *Stream) whileBlocked(patience time.Duration, then func()) (stop func()) {
	ended := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for {
			blocked, changed := c.session.watchBlocked()
			var over <-chan time.Time
			if blocked {
				over = time.After(patience)
			}
			select {
			case <-changed:
			case <-over:
				then()
				return
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		work.Wait()
	}
}
