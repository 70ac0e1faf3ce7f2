package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Do runs a blocking call of the client library, which has no deadline. When fn has not returned after the call
// timeout, or at the deadline of ctx if that is earlier, the session is killed, which makes fn return. The mere
// cancellation of ctx does not interrupt a call: it would cost the session, and with it every unsettled delivery. While
// the connection is not read because no memory is free, the answer may take longer; only the deadline of ctx ends that.
// name says what fn does, for the error.
func (s *Session) Do(ctx context.Context, name string, fn func() error) error {
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	deadline, _ := ctx.Deadline()
	return s.bounded(name, deadline, s.wire.Waited, fn)
}

// doPatiently is Do for a call that may wait while the broker's alarm blocks the connection: no answer is normal then.
func (s *Session) doPatiently(name string, fn func() error) error {
	return s.bounded(name, time.Time{}, s.wasBlocked, fn)
}

// doWhileUp is Do without a timeout: the end of the session ends the call.
func (s *Session) doWhileUp(name string, fn func() error) error {
	return s.bounded(name, time.Time{}, func(time.Time) bool { return true }, fn)
}

// bounded kills the session when fn has not returned within the call timeout, and in any case at the deadline; the zero
// time is none. The timeout begins anew when patient reports a reason to wait since it began.
func (s *Session) bounded(name string, deadline time.Time, patient func(since time.Time) bool, fn func() error) error {
	returned, timeout := make(chan struct{}), s.timeout
	defer close(returned)
	go func() {
		for late := false; ; {
			limit, since := timeout, time.Now()
			if left := time.Until(deadline); !deadline.IsZero() && left <= limit {
				limit, late = max(left, time.Millisecond), true
			}
			timer := time.NewTimer(limit)
			select {
			case <-returned:
				timer.Stop()
				return
			case <-timer.C:
				if late || !patient(since) {
					s.fail(&lateError{name})
					return
				}
			}
		}
	}()
	if err := s.Err(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := fn(); err != nil {
		return fmt.Errorf("%s: %w", name, s.endError(err))
	}
	return nil
}

// await receives from c. An alarm, the end of the session or of ctx ends the wait with ErrBlocked, ErrDisconnected or
// ErrBusy.
func await[T any](ctx context.Context, s *Session, c <-chan T) (v T, err error) {
	for {
		blocked, changed := s.watchBlocked()
		if blocked {
			return v, ErrBlocked
		}
		select {
		case v = <-c:
			return v, nil
		default:
		}
		select {
		case v = <-c:
			return v, nil
		case <-changed:
		case <-s.Done():
			return v, s.Err()
		case <-ctx.Done():
			return v, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
}

// ask returns the result of fn, which waits for the broker's answer. A caller that leaves before, for the reasons of
// await, does not end fn and does not cost the connection: late gets the result. No answer may be the sign of an alarm,
// and the next connection would have to find the alarm again.
func ask[T any](ctx context.Context, s *Session, fn func() (T, error), late func(T)) (T, error) {
	type result struct {
		value T
		err   error
	}
	answer, left := make(chan result), make(chan struct{})
	defer close(left)
	go func() {
		v, err := fn()
		select {
		case answer <- result{v, err}:
		case <-left:
			if err == nil {
				late(v)
			}
		}
	}()
	r, err := await(ctx, s, answer)
	if err == nil {
		err = r.err
	}
	return r.value, err
}

// missing reports that an object may be missing; see Options.Missing.
func (s *Session) missing(why error) {
	if s.options.Missing != nil {
		s.options.Missing(why)
	}
}

// endError turns what the library returned into why: a channel the broker closed, or a session that ended, of which the
// library says "channel/connection is not open" or what its own write met.
func (s *Session) endError(err error) error {
	var closed *amqp.Error
	if errors.As(err, &closed) && closed.Server && closed.Recover {
		return s.refusal(closed.Code, closed.Reason)
	}
	if s.conn.IsClosed() {
		<-s.Done() // the library marks itself closed a moment before it notifies watch
	}
	if ended := s.Err(); ended != nil {
		return ended
	}
	if _, broken := errors.AsType[net.Error](err); broken {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	return err
}

// refusal returns the error of a channel that the broker closed.
func (s *Session) refusal(code int, text string) error {
	refused := &RefusedError{Code: code, Text: text}
	if code == amqp.NotFound {
		s.missing(refused)
	}
	return refused
}

// lateError is the reason of a session that was killed because a call had no answer; it is a timeout for every reader
// of net.Error.
type lateError struct{ call string }

func (e *lateError) Error() string {
	return e.call + ": no answer in time: " + os.ErrDeadlineExceeded.Error() +
		"; if the broker is a cluster, a node of it may be down"
}
func (e *lateError) Unwrap() error { return os.ErrDeadlineExceeded }
