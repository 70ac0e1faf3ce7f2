package broker

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"sidecar/internal/message"
)

// isolationTime is how long after a refusal the messages of a lane go on channels of their own.
const isolationTime = time.Minute

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
	if err := s.findRequester(ctx, pub); err != nil { // before its turn: no other message waits for the answer
		return nil, err
	}
	c, err := await(ctx, s, l.turn)
	if err != nil {
		return nil, err
	}
	var untried *UntriedError
	defer func() {
		if untried == nil {
			l.turn <- c
			return
		}
		go func() { // one message at a time is kept by a dry run that is not answered
			<-untried.Ended
			l.turn <- c
		}()
	}()
	if c == nil || c.session != s || c.Ended() && c.mayBeReplaced(ctx) {
		if c != nil && !c.closed() {
			go c.closeAfterWaits() // with the connection at the latest
		}
		if c, err = s.Stream(ctx); err != nil {
			return nil, err
		}
		c.Gather()
	}
	r, err := c.trySend(ctx, pub)
	untried, _ = errors.AsType[*UntriedError](err)
	if c.Ended() && errors.Is(err, ErrDisconnected) && !errors.Is(err, ErrUnknown) {
		err = fmt.Errorf("%w: %w", errEnded, err)
	}
	return r, err
}

func (c *Stream) closeAfterWaits() {
	c.waits.Wait()
	c.Close()
}

// settleLimit is how long a lane waits for confirms before it replaces a stream over nacks.
const settleLimit = 500 * time.Millisecond

// mayBeReplaced reports whether no message on another channel can overtake one of the stream, which has Ended. Over
// nacks it is not replaced while a message is under way, and is used for another nackedLimit if a confirm takes long.
func (c *Stream) mayBeReplaced(ctx context.Context) bool {
	if c.retired.Load() || c.closed() {
		return true
	}
	c.Flush()
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	taken := 0
	defer func() {
		for range taken {
			c.slots <- struct{}{}
		}
	}()
	for ; taken < c.window; taken++ {
		if _, err := await(ctx, c.session, c.slots); err != nil {
			now := time.Now()
			c.nacked.Store(&now)
			return false
		}
	}
	return true
}
