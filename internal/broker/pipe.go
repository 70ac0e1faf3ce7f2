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
)

// pipeWindow is how many messages of a Pipe may wait for their confirms.
const pipeWindow = 256

// Pipe publishes many messages on one channel of one session, in their order, without waiting for each: a broker confirms
// a stream of them with far less work than the same messages one by one. Send is for one goroutine; the receipts are for any.
type Pipe struct {
	session  *Session
	ch       *amqp.Channel
	confirms *confirming
	closes   chan *amqp.Error
	slots    chan struct{}
	metrics  *metrics
	gathers  bool           // see Gather
	proven   bool           // the broker has answered: until then one message goes alone, see pool
	tried    int            // bytes of the largest body that the broker takes, as far as is known; -1: nothing is
	waits    sync.WaitGroup // receipts whose Wait has not returned
	retired  chan struct{}  // closed when a message was given up: no other one is sent
	retire   sync.Once      // closes it

	mu       sync.Mutex
	inflight map[*Receipt]struct{} // sent, and not confirmed or given up and not confirmed
	back     returns               // messages that were returned and are not yet reported
	why      error                 // the channel has been closed
}

// Receipt is one message on its way. Wait has to be called once for each.
type Receipt struct {
	pipe    *Pipe
	pub     *Publication
	confirm *amqp.DeferredConfirmation
	sent    time.Time
	print   *fingerprint // nil until it is needed
	givenUp bool         // Wait has ended without the broker's answer
	stray   error        // a message was returned that is like none of those under way: it may be this one
}

// Pipe opens a pipe on the connection that stands. It ends with that connection, or when it is closed.
func (p *Publisher) Pipe(ctx context.Context) (*Pipe, error) {
	l := p.current()
	if l == nil {
		return nil, ErrDisconnected
	}
	return p.openPipe(l.session, func(name string, fn func() error) error { return l.session.Do(ctx, name, fn) })
}

// openPipe opens a pipe by calls that are made with do, which bounds them.
func (p *Publisher) openPipe(s *Session, do caller) (*Pipe, error) {
	c := &Pipe{
		session: s, slots: make(chan struct{}, pipeWindow), metrics: p.dialer.metrics,
		inflight: map[*Receipt]struct{}{}, tried: -1, retired: make(chan struct{}),
	}
	err := do("open a channel", func() (err error) {
		if c.ch, err = s.conn.Channel(); err != nil {
			return err
		}
		c.confirms = s.wire.intake.confirm(c.ch, c.returned)
		c.closes = c.ch.NotifyClose(make(chan *amqp.Error, 1)) // buffered: the library sends from its reading goroutine
		return c.ch.Confirm(false)
	})
	return c, err
}

// caller makes a blocking call of the client library within bounds of its own: Session.Do or Session.doPatiently.
type caller func(name string, fn func() error) error

// Send writes one message, mandatory and persistent, when there is room for it. Its errors are those of Try, of
// Publisher.Publish for which nothing was sent, and ErrUnknown; Wait knows the others. The message must not be changed before
// Wait returns.
//
// The broker closes the channel over a message that is too large for it, and leaves all that are under way unknown. So one
// that is larger than all before it is tried first; of many there are few of those.
func (c *Pipe) Send(ctx context.Context, pub *Publication) (*Receipt, error) {
	var r *Receipt
	var err error
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
	if !c.proven {
		c.Flush()
		// It is waited for here, and once more by Wait, which then knows at once.
		c.proven = r.confirmed(ctx) == nil && r.confirm.Acked()
	}
	return r, nil
}

func (c *Pipe) send(ctx context.Context, pub *Publication) (*Receipt, error) {
	if err := pub.fits(c.session.FrameMax()); err != nil {
		return nil, err
	}
	if c.session.Blocked() {
		return nil, ErrBlocked
	}
	if err := c.room(ctx); err != nil {
		return nil, err
	}
	if c.session.Blocked() { // while there was no room
		<-c.slots
		return nil, ErrBlocked
	}
	if c.isRetired() {
		<-c.slots
		return nil, errRetired
	}
	msg := pub.Msg
	msg.DeliveryMode = amqp.Persistent
	r := &Receipt{pipe: c, pub: pub, sent: time.Now()}
	c.waits.Add(1)
	c.mu.Lock()
	c.inflight[r] = struct{}{} // before its return can come
	c.mu.Unlock()
	c.confirms.published.Add(1)
	stop := context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })
	if c.gathers {
		c.session.wire.gather(true)
	}
	confirm, err := c.ch.PublishWithDeferredConfirm(pub.Exchange, pub.Key, true, false, msg)
	if c.gathers {
		c.session.wire.gather(false)
	}
	stop()
	if err != nil {
		c.forget(r)
		if errors.Is(err, amqp.ErrClosed) {
			return nil, fmt.Errorf("%w: %w", ErrDisconnected, cmp.Or(c.reason(), err))
		}
		return nil, fmt.Errorf("%w: %w", ErrUnknown, c.session.explain(err))
	}
	r.confirm = confirm
	return r, nil
}

// room waits until another message may be under way.
func (c *Pipe) room(ctx context.Context) error {
	select {
	case c.slots <- struct{}{}:
		return nil
	default:
		c.Flush()
	}
	select {
	case c.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
	case <-c.session.Done():
		return c.session.Err()
	case <-c.retired: // the messages that were given up keep their slots
		if c.session.Blocked() {
			return ErrBlocked
		}
		return errRetired
	}
}

var errRetired = fmt.Errorf("%w: the channel is not used any more", ErrDisconnected)

func (c *Pipe) isRetired() bool {
	select {
	case <-c.retired:
		return true
	default:
		return false
	}
}

// Gather makes Send keep small messages back until they are 64 KiB or something else is written: one write of many messages
// costs both sides far less than as many writes. Whoever then waits for a receipt calls Flush before.
func (c *Pipe) Gather() { c.gathers = true }

// flushWithOthers lets the goroutines that are ready to run add their messages, and flushes. The end of ctx ends the session, as
// it does while a message is sent: a write that takes that long does not end otherwise.
func (c *Pipe) flushWithOthers(ctx context.Context) {
	runtime.Gosched()
	if c.session.wire.holds.Load() {
		defer context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })()
		c.Flush()
	}
}

// Flush writes what is kept back. When that fails the session ends, and with it everything that is under way.
func (c *Pipe) Flush() {
	if !c.gathers {
		return
	}
	if err := c.session.wire.flush(); err != nil {
		c.session.fail(err)
	}
}

// forget ends the wait for a message. One that was given up keeps its slot and is still under way: it may be returned.
func (c *Pipe) forget(r *Receipt) {
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
// ErrUnknown; a channel that the broker closes over one message, which the text then says, leaves all that were under way
// unknown.
func (r *Receipt) Wait(ctx context.Context) error {
	defer r.pipe.forget(r)
	if err := r.wait(ctx); err != nil {
		return fmt.Errorf("publish to exchange %q with key %q: %w", r.pub.Exchange, r.pub.Key, err)
	}
	r.pipe.metrics.confirmed(r.pub.Kind, time.Since(r.sent))
	return nil
}

func (r *Receipt) wait(ctx context.Context) error {
	c := r.pipe
	if err := r.confirmed(ctx); err != nil {
		return err
	}
	if !r.confirm.Acked() {
		if why := c.reason(); why != nil {
			return fmt.Errorf("%w: %w", ErrUnknown, why)
		}
		return ErrNacked
	}
	return c.cameBack(r)
}

// blockedPatience is how long a confirm is waited for while an alarm blocks the connection: what the broker had read by then
// it still confirms, what it has not it may read when the alarm is over.
const blockedPatience = 2 * time.Second

// confirmed waits for the broker's answer.
func (r *Receipt) confirmed(ctx context.Context) error {
	for {
		blocked, changed := r.pipe.session.watchBlocked()
		var patience <-chan time.Time
		if blocked {
			t := time.NewTimer(r.pipe.session.patience())
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
		r.pipe.giveUp(r)
		if blocked {
			return fmt.Errorf("%w: %w", ErrUnknown, ErrBlocked)
		}
		return fmt.Errorf("%w: no confirm in time: %w", ErrUnknown, context.Cause(ctx))
	}
}

// giveUp ends the wait for a message without an answer of the broker. Nothing more is sent on this channel: the client library
// would remember the message until the channel ends, and so would the pipe, because the message may still be returned.
func (c *Pipe) giveUp(r *Receipt) {
	c.retire.Do(func() { close(c.retired) })
	c.mu.Lock()
	defer c.mu.Unlock()
	r.givenUp = true
	r.fingerprint() // now: its owner may change the message from here on
	r.pub = &Publication{Exchange: r.pub.Exchange, Key: r.pub.Key}
}

// cameBack is why a message that is confirmed was returned; nil if it was not. The broker returns a message before it confirms
// it, and the intake reports a return before the library sees the confirm.
func (c *Pipe) cameBack(r *Receipt) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.back) > 0 {
		if why := c.back.take(r.fingerprint()); why != nil {
			return why
		}
	}
	return r.stray
}

// returned keeps a return until a message like it is confirmed. After one that is like none of the messages under way the
// outcome of each of them is unknown.
func (c *Pipe) returned(f fingerprint, why *ReturnedError) {
	c.mu.Lock()
	defer c.mu.Unlock()
	alike := 0
	for r := range c.inflight {
		if *r.fingerprint() == f {
			alike++
		}
	}
	if alike > c.back.count(f) {
		c.back.add(f, why)
		return
	}
	for r := range c.inflight {
		r.stray = fmt.Errorf("%w: another message than those under way was returned: %w", ErrUnknown, &strayReturn{why})
	}
}

// strayReturn hides that a message was unroutable: which one is not known.
type strayReturn struct{ why *ReturnedError }

func (e *strayReturn) Error() string { return e.why.Error() }

// reason is why the channel has been closed; nil while it is open.
func (c *Pipe) reason() error {
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
			c.why = c.session.explain(e)
		default:
			c.why = fmt.Errorf("%w: the channel was closed before the confirm", ErrDisconnected)
		}
	default:
	}
	return c.why
}

// ended reports whether nothing can be sent any more.
func (c *Pipe) ended() bool { return c.isRetired() || c.closed() }

func (c *Pipe) closed() bool { return c.ch.IsClosed() || c.session.Err() != nil }

// Close ends the pipe. What is under way then is ErrUnknown.
func (c *Pipe) Close() {
	_ = c.session.doPatiently("close a channel", c.ch.Close)
	c.session.wire.intake.unconfirm(c.confirms)
}
