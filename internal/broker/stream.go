package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
	"sidecar/internal/message"
)

// nackedLimit is how long a channel is used after its first nack; see mayBeReplaced. A queue that stays full costs each
// stream one channel in that time.
const nackedLimit = 5 * time.Second

// streamWindow is how many messages of a Stream may wait for their confirms.
const streamWindow = 4096

// Stream publishes messages on one channel of one session, in their order, and without waiting for the confirm of each
// when its window is larger than one: a broker confirms many of them together with far less work. Send is for one
// goroutine; the receipts are for any.
type Stream struct {
	session *Session
	ch      *amqp.Channel
	wire    *amqpwire.Confirming
	window  int
	slots   chan struct{}             // a value for each message that may still be sent
	gathers bool                      // see Gather
	tried   int                       // bytes of the largest body that the broker is known to take; -1: none
	retired atomic.Bool               // the wait for a message was given up: no other one is sent
	nacked  atomic.Pointer[time.Time] // when nackedLimit began; nil: no nack yet
	waits   sync.WaitGroup            // messages without an answer, but for those that were given up
	unwatch func() bool               // the end of the session no longer calls end

	mu       sync.Mutex
	first    uint64     // the tag of inflight[0]
	inflight []*Receipt // sent; nil: answered. inflight[0] is never nil
	back     []returned // messages that were returned and are not yet confirmed
	why      error      // the channel or the session has ended
}

// openStream opens a channel for confirmed messages.
func openStream(s *Session, window int) (*Stream, error) {
	c := &Stream{session: s, window: window, slots: make(chan struct{}, window), tried: -1, first: 1}
	for range window {
		c.slots <- struct{}{}
	}
	err := s.doPatiently("open a channel", func() (err error) {
		if c.ch, err = s.conn.Channel(); err != nil {
			return err
		}
		c.wire = s.wire.Confirm(c.ch, amqpwire.Events{Confirmed: c.confirmed, Closed: c.refused,
			Returned: func(f amqpwire.Fingerprint, why *ReturnedError) {
				s.missing(why)
				c.returned(f, why)
			}})
		return c.ch.Confirm(false)
	})
	if err != nil {
		return nil, err
	}
	c.unwatch = context.AfterFunc(s.ctx, func() { c.end(s.Err()) })
	return c, nil
}

// Send writes one message, mandatory and persistent, when there is room for it. Before a direct reply it waits for an
// answer on another connection, which it may have to make. Its errors are those of Session.Try, those of
// Publisher.Publish for which nothing was sent, and ErrUnknown; Wait returns the others. The message must not be
// changed before Wait returns or the dry run of an UntriedError has ended.
//
// The broker closes the channel over a message that is too large for it, and leaves all that are under way unknown. So
// a message that is larger than all before it is tried first.
func (c *Stream) Send(ctx context.Context, pub *message.Publication) (*Receipt, error) {
	err := c.session.findRequester(ctx, pub)
	if err != nil {
		return nil, failed(pub, err)
	}
	r, err := c.trySend(ctx, pub)
	if err != nil {
		return nil, failed(pub, err)
	}
	return r, nil
}

func (c *Stream) trySend(ctx context.Context, pub *message.Publication) (*Receipt, error) {
	if size := len(pub.Msg.Body); size > c.tried {
		if err := c.session.Try(ctx, pub); err != nil {
			return nil, err
		}
		c.tried = size
	}
	return c.send(ctx, pub)
}

func (c *Stream) send(ctx context.Context, pub *message.Publication) (*Receipt, error) {
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, c.session.FrameMax()); err != nil {
		return nil, err
	}
	if err := c.session.admit(ctx, pub); err != nil {
		return nil, err
	}
	if err := c.room(ctx); err != nil {
		return nil, err
	}
	r := &Receipt{stream: c, pub: pub, sent: time.Now()}
	if err := c.write(ctx, r); err != nil {
		return nil, err
	}
	return r, nil
}

// write hands a message to the connection.
func (c *Stream) write(ctx context.Context, r *Receipt) error {
	if err := c.enter(r); err != nil {
		return fmt.Errorf("%w: %w", ErrDisconnected, err)
	}
	wire, msg := c.session.wire, &r.pub.Msg // the broker may return it before the write ends, so it must not change
	if gathered := wire.Pending() + len(msg.Body); !c.gathers || gathered > gatherable {
		defer context.AfterFunc(ctx, func() { c.session.fail(&lateError{"publish"}) })()
	}
	err := wire.Publish(c.wire, r.pub.Exchange, r.pub.Key, !isDirectReply(r.pub), msg, c.gathers)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, amqp.ErrClosed): // the broker cannot have the message, and the stream has ended before
		return fmt.Errorf("%w: %w", ErrDisconnected, cmp.Or(c.reason(), err))
	}
	c.giveUp(r)
	return fmt.Errorf("%w: %w", ErrUnknown, c.session.endError(err))
}

// gatherable is a number of bytes that can be gathered without a write.
const gatherable = 32 << 10

// room takes a slot when another message may be under way.
func (c *Stream) room(ctx context.Context) (err error) {
	select {
	case <-c.slots:
	default:
		c.Flush()
		if _, err := await(ctx, c.session, c.slots); err != nil {
			return err
		}
	}
	switch { // while there was no room
	case c.session.Blocked():
		err = ErrBlocked
	case c.retired.Load():
		err = fmt.Errorf("%w: the channel is not used any more", ErrDisconnected)
	default:
		return nil
	}
	c.slots <- struct{}{}
	return err
}

// Gather makes Send keep small messages back until they are 64 KiB or something else is written: one write of many
// messages costs both sides far less than as many writes. Flush has to be called before the wait for a receipt.
func (c *Stream) Gather() { c.gathers = true }

// flushWithOthers lets the goroutines that are ready to run add their messages, and flushes. The end of ctx ends the
// session, as it does while a message is sent: a write that takes that long does not end otherwise.
func (c *Stream) flushWithOthers(ctx context.Context) {
	runtime.Gosched()
	if c.session.wire.Pending() == 0 {
		return
	}
	if ctx.Err() == nil { // the frames may be those of other messages, which have time left
		defer context.AfterFunc(ctx, func() { c.session.fail(&lateError{"publish"}) })()
	}
	c.Flush()
}

// Flush writes the messages that are kept back. When that fails the session ends, and with it everything that is under
// way.
func (c *Stream) Flush() {
	if !c.gathers {
		return
	}
	if err := c.session.wire.Flush(); err != nil {
		c.session.fail(err)
	}
}

// Ended reports whether the next message needs another stream: nothing can be sent any more, or nackedLimit is over.
func (c *Stream) Ended() bool { return c.retired.Load() || c.closed() || c.nackedLong() }

// nackedLong reports whether nackedLimit, which the first nack began, is over. After a quorum queue of RabbitMQ 3.10
// was full, the broker goes on nacking for that queue on each channel with a nack, although the limit of the queue was
// removed by a policy; a new channel is confirmed. Confirms for other queues prove nothing.
func (c *Stream) nackedLong() bool {
	begun := c.nacked.Load()
	return begun != nil && time.Since(*begun) > c.session.options.nackedLimit
}

func (c *Stream) closed() bool { return c.reason() != nil || c.session.Err() != nil }

// Close ends the stream. Messages that are under way then are ErrUnknown.
func (c *Stream) Close() {
	c.unwatch()
	c.end(fmt.Errorf("%w: the channel was closed before the confirm", ErrDisconnected))
	_ = c.session.doPatiently("close a channel", c.ch.Close)
	c.session.wire.Unconfirm(c.wire)
}
