package broker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/budget"
	"sidecar/internal/message"
)

// Try asks the broker whether it would accept a message from this user: it publishes the message in a transaction and
// rolls that back, so nothing has happened afterwards. It does not say whether the message would be routed. The errors
// are ErrInvalid when the cause is in the message, such as a body larger than the broker accepts; ErrRefused when the
// cause would affect other messages too, such as a missing right; ErrBlocked; ErrBusy when ctx ended before the answer;
// and those of the connection. One without an answer of the broker is an UntriedError.
func (s *Session) Try(ctx context.Context, pub *message.Publication) error {
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, s.FrameMax()); err != nil {
		return err
	}
	if s.Blocked() {
		return ErrBlocked
	}
	question := *pub // it may outlive the message
	ended := make(chan struct{})
	answered, err := ask(ctx, s, func() (bool, error) {
		defer close(ended)
		return true, s.dryRun(&question, s.doPatiently)
	}, func(bool) {})
	if !answered {
		return &UntriedError{err, ended}
	}
	return err
}

// UntriedError is why a caller did not wait for the answer to the dry run of a message. The dry run goes on, and reads
// the body, until Ended is closed: by the answer, or soon after the end of the session.
type UntriedError struct {
	Err   error
	Ended <-chan struct{}
}

// Error does not speak of a dry run: in the commands and in the API that is one that a user has asked for.
func (e *UntriedError) Error() string {
	return "the broker has not answered whether it takes the message: " + e.Err.Error()
}

// Unwrap returns the reason.
func (e *UntriedError) Unwrap() error { return e.Err }

// Give gives back the n bytes of a message whose publish ended with err, when nothing reads the message any more: at
// once, or when the dry run that had no answer has ended.
func Give(memory *budget.Account, n int64, err error) {
	late, ok := errors.AsType[*UntriedError](err)
	if !ok {
		memory.Give(n)
		return
	}
	go func() {
		<-late.Ended
		memory.Give(n)
	}()
}

// dryRun is Try without its checks. During an alarm it lasts until that is over. do runs each of its calls.
func (s *Session) dryRun(pub *message.Publication, do func(name string, fn func() error) error) error {
	defer func() {
		if s.Err() == nil {
			s.markAnswered() // by any answer, and without a channel: nothing else would end the wait of admit
			s.options.Alarm.answer()
		}
	}()
	var ch *amqp.Channel // of its own: the broker closes it over a refusal
	err := do("open a channel", func() (err error) {
		ch, err = s.conn.Channel()
		return err
	})
	if err != nil {
		return err
	}
	key := pub.Key
	if strings.HasPrefix(key, message.DirectReply) {
		key = "" // the broker hands a direct reply over at once, also in a transaction
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	err = do("try a message", func() error {
		if err := ch.Tx(); err != nil {
			return err
		}
		// The broker checks a message when it arrives, not only when it is committed.
		if err := ch.PublishWithContext(context.Background(), pub.Exchange, key, false, false, pub.Msg); err != nil {
			return err
		}
		if err := ch.TxRollback(); err != nil {
			return err
		}
		return ch.Close()
	})
	if errors.Is(err, amqp.ErrClosed) { // the refusal came before the next call
		if e := <-closes; e != nil {
			err = s.endError(e)
		}
	}
	if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == amqp.PreconditionFailed {
		return fmt.Errorf("%w: %w", ErrInvalid, refused)
	}
	return err
}

// admit waits until the broker has answered a dry run on this connection; an alarm refuses the message at once.
//
// During a resource alarm the broker stops reading from a connection in the middle of its first message, and takes that
// message when the alarm is over. Without a dry run before it, each reconnect during an alarm would leave as many
// messages behind as there are publishes under way, each to be published once more when the alarm ends.
func (s *Session) admit(ctx context.Context, pub *message.Publication) error {
	select {
	case <-s.answered:
	default:
		s.probe.Do(func() {
			question := &message.Publication{Exchange: pub.Exchange, Key: pub.Key} // it may outlive the message
			go func() { _ = s.dryRun(question, s.doPatiently) }()
		})
	}
	_, err := await(ctx, s, s.answered)
	return err
}
