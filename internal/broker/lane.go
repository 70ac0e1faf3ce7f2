package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// apartFor is how long after a refusal the messages of a lane go on channels of their own.
	apartFor = time.Minute
	// paddedTry is up to which size a message is tried as a larger one, in bytes: so that a stream of growing messages is
	// not tried one by one.
	paddedTry, leastTry = 1 << 20, 64 << 10
)

// Lane publishes to one exchange for many goroutines at once. Their messages share a Pipe, so a channel that the broker
// closes over one of them, because the exchange has gone or a right was taken, leaves those of this exchange unknown and no
// others. From then on, until there was no refusal for a minute, each goes on a channel of its own: exactly the message
// that the broker refuses is refused.
type Lane struct {
	publisher *Publisher
	exchange  string

	turn  chan struct{} // held by the one that writes
	pipe  *Pipe         // with turn; nil: none was opened yet
	made  time.Time
	apart atomic.Int64 // until when messages go apart, in nanoseconds after made
	work  sync.WaitGroup
}

// NewLane returns a lane that opens its channel with the first message.
func (p *Publisher) NewLane(exchange string) *Lane {
	return &Lane{publisher: p, exchange: exchange, turn: make(chan struct{}, 1), made: time.Now()}
}

// Publish is Publisher.Publish for a message to the lane's exchange; ctx needs a deadline. During an alarm it fails with
// ErrBlocked at once, also when nothing has told of it yet: a question that the broker leaves unanswered is no message.
func (l *Lane) Publish(ctx context.Context, pub *Publication) error {
	wait, err := l.Begin(ctx, pub)
	if err != nil {
		return err
	}
	return wait()
}

// Begin sends a message, behind those that were begun before, and returns what waits for its confirm: it has to be called
// once, and ctx must not end before. The message may leave only then, in one write with others. An error means that wait has nothing to add; the message must not be changed until then.
func (l *Lane) Begin(ctx context.Context, pub *Publication) (wait func() error, err error) {
	pub.Exchange = l.exchange
	for again := false; ; again = true {
		if int64(time.Since(l.made)) < l.apart.Load() {
			return func() error { return nil }, l.separate(ctx, pub)
		}
		r, err := l.send(ctx, pub)
		switch {
		case err == nil:
			return func() error {
				r.pipe.flushWithOthers(ctx)
				err := r.Wait(ctx)
				if errors.Is(err, ErrRefused) {
					l.goApart()
				}
				return err
			}, nil
		case errors.Is(err, errEnded) && !again: // the channel, before anything was sent; perhaps another one takes it
			continue
		case errors.Is(err, ErrRefused) && !errors.Is(err, ErrInvalid):
			l.goApart()
		}
		return nil, fmt.Errorf("publish to exchange %q with key %q: %w", pub.Exchange, pub.Key, err)
	}
}

// separate publishes on a channel that nothing else is under way on.
func (l *Lane) separate(ctx context.Context, pub *Publication) error {
	err := l.publisher.Publish(ctx, pub)
	if errors.Is(err, ErrRefused) {
		l.goApart() // who is refused may come again
	}
	return err
}

func (l *Lane) goApart() { l.apart.Store(int64(time.Since(l.made) + apartFor)) }

// errEnded marks a message that met a channel which had ended before.
var errEnded = errors.New("the channel has ended")

// send writes one message, in its turn.
func (l *Lane) send(ctx context.Context, pub *Publication) (*Receipt, error) {
	p := l.publisher.current()
	if p == nil {
		return nil, ErrDisconnected
	}
	if err := pub.fits(p.session.FrameMax()); err != nil {
		return nil, err
	}
	if err := l.enter(ctx, p.session); err != nil {
		return nil, err
	}
	if !l.fit(p.session, pub) {
		if err := l.prepare(ctx, p, pub); err != nil {
			return nil, err
		}
	}
	defer l.leave()
	r, err := l.pipe.send(ctx, pub)
	if l.pipe.ended() && errors.Is(err, ErrDisconnected) && !errors.Is(err, ErrUnknown) {
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

// fit reports whether the pipe is good for a message.
func (l *Lane) fit(s *Session, pub *Publication) bool {
	c := l.pipe
	return c != nil && c.session == s && !c.ended() && len(pub.Msg.Body) <= c.tried
}

// prepare makes the pipe fit for a message. It keeps the turn when it returns nil. Otherwise the turn may stay taken until
// the broker answers: a question that it does not answer tells of an alarm, and is no reason to give the connection up,
// which would only have to learn of it again.
func (l *Lane) prepare(ctx context.Context, p *pool, pub *Publication) error {
	answer, left := make(chan error), make(chan struct{})
	defer close(left)
	question := *pub // it may outlive the request
	l.work.Go(func() {
		err := l.ask(p, &question)
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
		blocked, changed := p.session.watchBlocked()
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

// ask opens the pipe, if there is none that is good, and finds out whether the broker takes a body of that size.
func (l *Lane) ask(p *pool, pub *Publication) error {
	if old := l.pipe; old == nil || old.session != p.session || old.ended() {
		l.retire(old)
		l.pipe = nil
		c, err := l.publisher.openPipe(p.session, p.session.doPatiently)
		if err != nil {
			return err
		}
		c.Gather()
		l.pipe = c
	}
	c, size := l.pipe, len(pub.Msg.Body)
	for padded := padding(size); ; padded = size {
		trial := *pub
		if padded > size {
			trial.Msg.Body = make([]byte, padded)
		}
		err := c.try(&trial, p.session.doPatiently)
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
		p.prove() // it has answered a publish
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

// retire closes a pipe when every wait for its messages has ended.
func (l *Lane) retire(c *Pipe) {
	if c == nil || c.closed() {
		return
	}
	l.work.Go(func() {
		c.waits.Wait()
		c.Close()
	})
}

// Wait returns when nothing of the lane runs any more. What does may wait for the end of the connection.
func (l *Lane) Wait() { l.work.Wait() }
