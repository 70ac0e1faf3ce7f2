package broker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/amqpwire"
)

// streamWindow is how many messages of a Stream may wait for their confirms.
const streamWindow = 256

// Stream publishes messages on one channel of one session, in their order, and without waiting for the confirm of each
// when its window is larger than one: a broker confirms many of them together with far less work. Send is for one
// goroutine; the receipts are for any.
type Stream struct {
	session  *Session
	ch       *amqp.Channel
	confirms *amqpwire.Confirming
	closes   chan *amqp.Error
	slots    chan struct{} // the window
	metrics  *metrics
	gathers  bool           // see Gather
	tried    int            // bytes of the largest body that the broker is known to take; -1: none
	waits    sync.WaitGroup // receipts whose wait has not returned
	retired  chan struct{}  // closed when the wait for a message was given up: no other one is sent
	retire   sync.Once      // closes it

	mu       sync.Mutex
	inflight map[*Receipt]struct{} // sent, and neither confirmed nor returned
	back     returns               // messages that were returned and are not yet reported
	why      error                 // the channel has been closed
}

// Receipt is one message under way. Wait has to be called once for each.
type Receipt struct {
	stream  *Stream
	pub     *Publication
	confirm *amqp.DeferredConfirmation
	sent    time.Time
	print   *amqpwire.Fingerprint // nil until it is needed
	givenUp bool                  // the wait has ended without the broker's answer
	back    error                 // why this message was returned, when no other was under way
	stray   error                 // a message was returned that equals none of those under way: it may be this one
}

// Stream opens a stream on the current connection. It ends with that connection, or when it is closed.
func (p *Publisher) Stream(ctx context.Context) (*Stream, error) {
	s := p.current()
	if s == nil {
		return nil, ErrDisconnected
	}
	return s.Stream(ctx)
}

// Stream opens a stream on the session, which ends with it.
func (s *Session) Stream(ctx context.Context) (*Stream, error) {
	return openStream(s, streamWindow, func(name string, fn func() error) error { return s.Do(ctx, name, fn) })
}

// openStream opens a channel for confirmed messages with calls bounded by do.
func openStream(s *Session, window int, do caller) (*Stream, error) {
	c := &Stream{
		session: s, slots: make(chan struct{}, window), metrics: s.metrics,
		inflight: map[*Receipt]struct{}{}, tried: -1, retired: make(chan struct{}),
	}
	err := do("open a channel", func() (err error) {
		if c.ch, err = s.conn.Channel(); err != nil {
			return err
		}
		c.confirms = s.wire.Confirm(c.ch, c.returned)
		c.closes = c.ch.NotifyClose(make(chan *amqp.Error, 1)) // buffered: the library sends from its reading goroutine
		return c.ch.Confirm(false)
	})
	return c, err
}

// caller makes a blocking call of the client library within bounds of its own: Session.Do or Session.doPatiently.
type caller func(name string, fn func() error) error

// Send writes one message, mandatory and persistent, when there is room for it. Its errors are those of Try, of
// Publisher.Publish for which nothing was sent, and ErrUnknown; Wait returns the others. The message must not be
// changed before Wait returns.
//
// The broker closes the channel over a message that is too large for it, and leaves all that are under way unknown. So
// a message that is larger than all before it is tried first.
func (c *Stream) Send(ctx context.Context, pub *Publication) (r *Receipt, err error) {
	if size := len(pub.Msg.Body); size > c.tried {
		if err = c.Try(ctx, pub); err == nil {
			c.tried = size
		}
	}
	if err == nil {
		r, err = c.send(ctx, pub)
	}
	if err != nil {
		return nil, fmt.Errorf("publish to exchange %q with key %q: %w", pub.Exchange, pub.Key, err)
	}
	return r, nil
}

func (c *Stream) send(ctx context.Context, pub *Publication) (*Receipt, error) {
	if err := amqpwire.Fits(pub.Exchange, pub.Key, &pub.Msg, c.session.FrameMax()); err != nil {
		return nil, err
	}
	alone, err := c.session.enter(ctx)
	if err != nil {
		return nil, err
	}
	if alone {
		defer c.session.leaveAlone()
	}
	if err := c.room(ctx); err != nil {
		return nil, err
	}
	r, err := c.write(ctx, pub)
	if err == nil && alone {
		c.Flush()
		// The wait of the receipt returns the same again. The end of the channel is an answer when the broker gave a reason.
		if r.confirmed(ctx) == nil {
			if why := c.reason(); r.confirm.Acked() || why == nil || errors.Is(why, ErrRefused) {
				c.session.publishAnswered()
			}
		}
	}
	return r, err
}

// write sends a message; its slot has been taken.
func (c *Stream) write(ctx context.Context, pub *Publication) (*Receipt, error) {
	msg := pub.Msg
	msg.DeliveryMode = amqp.Persistent
	r := &Receipt{stream: c, pub: pub, sent: time.Now()}
	c.waits.Add(1)
	c.mu.Lock()
	c.inflight[r] = struct{}{} // before it can be returned
	c.mu.Unlock()
	c.confirms.Publishing()
	stop := context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })
	if c.gathers {
		c.session.wire.Gather(true)
	}
	confirm, err := c.ch.PublishWithDeferredConfirm(pub.Exchange, pub.Key, true, false, msg)
	if c.gathers {
		c.session.wire.Gather(false)
	}
	stop()
	if err != nil {
		c.forget(r)
		// The library returns ErrClosed before the last frame was written, so the broker cannot have the message; after any
		// other error it may.
		if errors.Is(err, amqp.ErrClosed) {
			return nil, fmt.Errorf("%w: %w", ErrDisconnected, cmp.Or(c.reason(), err))
		}
		c.giveUp(nil)
		return nil, fmt.Errorf("%w: %w", ErrUnknown, c.session.endError(err))
	}
	r.confirm = confirm
	return r, nil
}

// room takes a slot when another message may be under way.
func (c *Stream) room(ctx context.Context) (err error) {
	select {
	case c.slots <- struct{}{}:
	default:
		c.Flush()
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		case <-c.session.Done():
			return c.session.Err()
		case <-c.retired: // the messages that were given up keep their slots
			return c.notUsed()
		}
	}
	if c.session.Blocked() || c.isRetired() { // while there was no room
		<-c.slots
		return c.notUsed()
	}
	return nil
}

// notUsed returns why nothing is sent on a channel that is still open.
func (c *Stream) notUsed() error {
	if c.session.Blocked() {
		return ErrBlocked
	}
	return fmt.Errorf("%w: the channel is not used any more", ErrDisconnected)
}

func (c *Stream) isRetired() bool {
	select {
	case <-c.retired:
		return true
	default:
		return false
	}
}

// Gather makes Send keep small messages back until they are 64 KiB or something else is written: one write of many
// messages costs both sides far less than as many writes. Flush has to be called before the wait for a receipt.
func (c *Stream) Gather() { c.gathers = true }

// flushWithOthers lets the goroutines that are ready to run add their messages, and flushes. The end of ctx ends the
// session, as it does while a message is sent: a write that takes that long does not end otherwise.
func (c *Stream) flushWithOthers(ctx context.Context) {
	runtime.Gosched()
	if c.session.wire.Pending() > 0 {
		defer context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })()
		c.Flush()
	}
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

// forget ends the wait for a message. One whose wait was given up keeps its slot and is still under way: it may be
// returned.
func (c *Stream) forget(r *Receipt) {
	defer c.waits.Done()
	if r.givenUp {
		return
	}
	c.mu.Lock()
	delete(c.inflight, r)
	c.mu.Unlock()
	<-c.slots
}

// Wait returns nil when the broker has the message and has routed it. The errors are ErrUnroutable, ErrNacked and
// ErrUnknown; a channel that the broker closes over one message, which the text then says, leaves all that were under
// way unknown.
func (r *Receipt) Wait(ctx context.Context) error {
	if err := r.await(ctx); err != nil {
		return fmt.Errorf("publish to exchange %q with key %q: %w", r.pub.Exchange, r.pub.Key, err)
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
			return ErrNacked
		case errors.Is(why, ErrRefused) && cap(c.slots) == 1: // no other message can be meant
			return why
		}
		return fmt.Errorf("%w: %w", ErrUnknown, why)
	}
	if err := c.returnOf(r); err != nil {
		return err
	}
	c.metrics.confirmed(r.pub.Kind, time.Since(r.sent))
	return nil
}

// blockedPatience is how long a confirm is waited for while an alarm blocks the connection: what the broker had read by
// then it still confirms, what it has not it may read when the alarm is over.
const blockedPatience = 2 * time.Second

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
	c.retire.Do(func() { close(c.retired) })
	if r == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	r.givenUp = true
	r.fingerprint() // now: its owner may change the message from here on
	r.pub = &Publication{Exchange: r.pub.Exchange, Key: r.pub.Key}
}

// returnOf is why a message that is confirmed was returned; nil if it was not. The broker returns a message before it
// confirms it, and the intake reports a return before the library gets the confirm.
func (c *Stream) returnOf(r *Receipt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.back) > 0 {
		if why := c.back.match(r.fingerprint()); why != nil {
			return why
		}
	}
	return cmp.Or(r.back, r.stray)
}

// returned keeps a return until a message that equals it is confirmed. After a return that equals none of the messages
// under way the outcome of each of them is unknown.
func (c *Stream) returned(f amqpwire.Fingerprint, why *ReturnedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	equal := 0
	for r := range c.inflight {
		if cap(c.slots) == 1 {
			r.back = why
			return
		}
		if *r.fingerprint() == f {
			equal++
		}
	}
	if equal > c.back.count(f) {
		c.back.add(f, why)
		return
	}
	for r := range c.inflight {
		r.stray = fmt.Errorf("%w: another message than those under way was returned: %w", ErrUnknown, &strayReturn{why})
	}
}

// strayReturn hides that a message was unroutable: it is not known which.
type strayReturn struct{ why *ReturnedError }

func (e *strayReturn) Error() string { return e.why.Error() }

// reason returns why the channel has been closed; nil while it is open.
func (c *Stream) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.why != nil {
		return c.why
	}
	select {
	case e, ok := <-c.closes:
		switch {
		case ok && e.Server && e.Recover:
			c.why = &RefusedError{Code: e.Code, Text: e.Reason}
		case ok:
			c.why = c.session.endError(e)
		default:
			c.why = fmt.Errorf("%w: the channel was closed before the confirm", ErrDisconnected)
		}
	default:
	}
	return c.why
}

// ended reports whether nothing can be sent any more.
func (c *Stream) ended() bool { return c.isRetired() || c.closed() }

func (c *Stream) closed() bool { return c.ch.IsClosed() || c.session.Err() != nil }

// Close ends the stream. Messages that are under way then are ErrUnknown.
func (c *Stream) Close() {
	_ = c.session.doPatiently("close a channel", c.ch.Close)
	c.session.wire.Unconfirm(c.confirms)
}
