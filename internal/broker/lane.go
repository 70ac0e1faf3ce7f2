package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

const (
	// isolationTime is how long after a refusal the messages of a lane go on channels of their own.
	isolationTime = time.Minute
	// paddedTry is up to which size a message is tried as a larger one, in bytes: so that a stream of growing messages is
	// not tried one by one.
	paddedTry, leastTry = 1 << 20, 64 << 10
)

// Lane publishes to one exchange for many goroutines at once. Their messages share a Stream, so a channel that the
// broker closes over one of them, because the exchange is missing or a right was taken, leaves those of this exchange
// unknown and no others. From then on, until there was no refusal for a minute, each message goes on its own channel:
// exactly the message that the broker refuses is refused.
type Lane struct {
	publisher *Publisher
	exchange  string

	turn     chan struct{} // held by the goroutine that writes
	stream   *Stream       // with turn; nil: none was opened yet
	made     time.Time
	isolated atomic.Int64 // until when each message goes on its own channel, in nanoseconds after made
	work     sync.WaitGroup
}

// NewLane returns a lane that opens its channel with the first message.
func (p *Publisher) NewLane(exchange string) *Lane {
	return &Lane{publisher: p, exchange: exchange, turn: make(chan struct{}, 1), made: time.Now()}
}

// Publish is Publisher.Publish for a message to the lane's exchange; ctx needs a deadline. It returns ErrBlocked during
// a resource alarm, even if connection.blocked has not arrived: a dry run that the broker does not answer is not a
// message.
func (l *Lane) Publish(ctx context.Context, pub *Publication) error {
	wait, err := l.Begin(ctx, pub)
	if err != nil {
		return err
	}
	return wait()
}

// Begin sends a message, behind those that were begun before, and returns the function that waits for its confirm: wait
// must be called once, and ctx must not end before. The message may only leave then, in one write with others. The
// message must not be changed before wait returns. After an error wait is nil.
func (l *Lane) Begin(ctx context.Context, pub *Publication) (wait func() error, err error) {
	pub.Exchange = l.exchange
	for again := false; ; again = true {
		if int64(time.Since(l.made)) < l.isolated.Load() {
			err := l.publisher.Publish(ctx, pub)
			if errors.Is(err, ErrRefused) {
				l.isolate()
			}
			return func() error { return nil }, err
		}
		r, err := l.send(ctx, pub)
		switch {
		case err == nil:
			return func() error {
				r.stream.flushWithOthers(ctx)
				err := r.Wait(ctx)
				if errors.Is(err, ErrRefused) {
					l.isolate()
				}
				return err
			}, nil
		case errors.Is(err, errEnded) && !again: // the channel, before anything was sent; perhaps another one takes it
			continue
		case errors.Is(err, ErrRefused) && !errors.Is(err, ErrInvalid):
			l.isolate()
		}
		return nil, fmt.Errorf("publish to exchange %q with key %q: %w", pub.Exchange, pub.Key, err)
	}
}

func (l *Lane) isolate() { l.isolated.Store(int64(time.Since(l.made) + isolationTime)) }

// errEnded marks a message that met a channel which had ended before.
var errEnded = errors.New("the channel has ended")

// send writes one message, in its turn.
func (l *Lane) send(ctx context.Context, pub *Publication) (*Receipt, error) {
	s := l.publisher.current()
	if s == nil {
		return nil, ErrDisconnected
	}
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, s.FrameMax()); err != nil {
		return nil, err
	}
	if err := l.enter(ctx, s); err != nil {
		return nil, err
	}
	if !l.takes(s, pub) {
		if err := l.prepare(ctx, s, pub); err != nil {
			return nil, err
		}
	}
	defer l.leave()
	r, err := l.stream.send(ctx, pub)
	if l.stream.ended() && errors.Is(err, ErrDisconnected) && !errors.Is(err, ErrUnknown) {
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	return r, err
}

// enter waits for the turn; an alarm refuses it at once.
func (l *Lane) enter(ctx context.Context, s *Session) error {
	for {
		blocked, changed := s.watchBlocked()
		if blocked {
			return ErrBlocked
		}
		select {
		case l.turn <- struct{}{}:
			return nil
		default:
		}
		select {
		case l.turn <- struct{}{}:
			return nil
		case <-changed:
		case <-s.Done():
			return s.Err()
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
}

func (l *Lane) leave() { <-l.turn }

// takes reports whether the stream can be used for a message.
func (l *Lane) takes(s *Session, pub *Publication) bool {
	c := l.stream
	return c != nil && c.session == s && !c.ended() && len(pub.Msg.Body) <= c.tried
}

// prepare makes the stream usable for a message. It keeps the turn when it returns nil. Otherwise the turn may stay
// taken until the broker answers: a dry run without an answer is the sign of an alarm, and not a reason to give the
// connection up, because the next one would have to find the alarm again.
func (l *Lane) prepare(ctx context.Context, s *Session, pub *Publication) error {
	answer, left := make(chan error), make(chan struct{})
	defer close(left)
	question := *pub // it may outlive the request
	l.work.Go(func() {
		err := l.open(s, &question)
		if err != nil {
			l.leave()
		}
		select {
		case answer <- err:
		case <-left:
			if err == nil {
				l.leave()
			}
		}
	})
	for {
		blocked, changed := s.watchBlocked()
		if blocked {
			return ErrBlocked
		}
		select {
		case err := <-answer:
			return err
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
}

// open opens the stream, unless one can be used, and finds out whether the broker takes a body of that size.
func (l *Lane) open(s *Session, pub *Publication) error {
	if old := l.stream; old == nil || old.session != s || old.ended() {
		l.close(old)
		l.stream = nil
		c, err := openStream(s, streamWindow, s.doPatiently)
		if err != nil {
			return err
		}
		c.Gather()
		l.stream = c
	}
	c, size := l.stream, len(pub.Msg.Body)
	for padded := padding(size); ; padded = size {
		trial := *pub
		if padded > size {
			trial.Msg.Body = make([]byte, padded)
		}
		err := c.try(&trial, s.doPatiently)
		if refused, ok := errors.AsType[*RefusedError](err); ok && refused.Code == amqp.PreconditionFailed {
			if padded > size {
				continue
			}
			return fmt.Errorf("%w: %w", ErrInvalid, refused)
		}
		if err != nil {
			return err
		}
		c.tried = padded
		s.publishAnswered()
		return nil
	}
}

// padding is the size to try first for a body.
func padding(size int) int {
	if size > paddedTry {
		return size
	}
	padded := leastTry
	for padded < size {
		padded *= 2
	}
	return padded
}

// close closes a stream when every wait for its messages has ended.
func (l *Lane) close(c *Stream) {
	if c == nil || c.closed() {
		return
	}
	l.work.Go(func() {
		c.waits.Wait()
		c.Close()
	})
}

// Wait returns when no goroutine of the lane runs any more; the last one may wait for the end of the connection.
func (l *Lane) Wait() { l.work.Wait() }
