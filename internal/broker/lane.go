package broker

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"sidecar/internal/amqpwire"
	"sidecar/internal/message"
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

	turn     chan *Stream // holds the stream while no goroutine writes; nil: none was opened yet
	made     time.Time
	isolated atomic.Int64 // until when each message goes on its own channel, in nanoseconds after made
	work     sync.WaitGroup
}

// NewLane returns a lane that opens its channel with the first message.
func (p *Publisher) NewLane(exchange string) *Lane {
	l := &Lane{publisher: p, exchange: exchange, turn: make(chan *Stream, 1), made: time.Now()}
	l.turn <- nil
	return l
}

// Begin sends a message, behind those that were begun before, and returns the function that waits for its confirm: wait
// must be called once, and ctx, which needs a deadline, must not end before. The message may only leave then, in one
// write with others. It must not be changed before wait returns. After an error wait is nil.
//
// The errors are those of Publisher.Publish. ErrBlocked is returned during a resource alarm, even if connection.blocked
// has not arrived: a dry run that the broker does not answer is not a message.
func (l *Lane) Begin(ctx context.Context, pub *message.Publication) (wait func() error, err error) {
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
		return nil, failed(pub, err)
	}
}

func (l *Lane) isolate() { l.isolated.Store(int64(time.Since(l.made) + isolationTime)) }

// errEnded marks a message that met a channel which had ended before.
var errEnded = errors.New("the channel has ended")

// send writes one message, in its turn.
func (l *Lane) send(ctx context.Context, pub *message.Publication) (*Receipt, error) {
	s := l.publisher.current()
	if s == nil {
		return nil, ErrDisconnected
	}
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, s.FrameMax()); err != nil {
		return nil, err
	}
	c, err := await(ctx, s, l.turn)
	if err != nil {
		return nil, err
	}
	if !c.usable(s) || len(pub.Msg.Body) > c.tried {
		if c, err = l.prepare(ctx, s, c, pub); err != nil {
			return nil, err
		}
	}
	defer func() { l.turn <- c }()
	r, err := c.send(ctx, pub)
	if c.ended() && errors.Is(err, ErrDisconnected) && !errors.Is(err, ErrUnknown) {
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	return r, err
}

// usable reports whether c is an open stream of the session.
func (c *Stream) usable(s *Session) bool { return c != nil && c.session == s && !c.ended() }

// prepare returns a stream for the message. After an error the next message has the turn, when the broker has answered.
func (l *Lane) prepare(ctx context.Context, s *Session, c *Stream, pub *message.Publication) (*Stream, error) {
	question := *pub // it may outlive the request
	open := func() (*Stream, error) {
		c, err := l.open(s, c, &question)
		if err != nil {
			l.turn <- c
		}
		return c, err
	}
	return ask(ctx, s, l.work.Go, open, func(c *Stream) { l.turn <- c })
}

// open returns c, or another stream if c cannot be used, and finds out whether the broker takes a body of that size.
func (l *Lane) open(s *Session, c *Stream, pub *message.Publication) (*Stream, error) {
	if !c.usable(s) {
		l.close(c)
		fresh, err := openStream(s, streamWindow)
		if err != nil {
			return nil, err
		}
		fresh.Gather()
		c = fresh
	}
	size := len(pub.Msg.Body)
	for padded := padding(size); ; padded = size {
		trial := *pub
		if padded > size {
			trial.Msg.Body = make([]byte, padded)
		}
		err := s.dryRun(&trial, s.doPatiently)
		switch {
		case err == nil:
			c.tried = padded
			return c, nil
		case padded == size || !errors.Is(err, ErrInvalid):
			return c, err
		}
	}
}

// padding is the size to try first for a body.
func padding(size int) int {
	if size > paddedTry {
		return size
	}
	return 1 << bits.Len(uint(max(size, leastTry)-1)) // #nosec G115 -- the next power of two
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
