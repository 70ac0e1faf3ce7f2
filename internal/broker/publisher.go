package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// maxChannels bounds the publishes under way at once: each has a channel to itself.
const maxChannels = 32

// Publisher publishes on a connection of its own: a broker that blocks publishers stops reading from their connections,
// and acks must not wait behind that.
type Publisher struct {
	dialer *Dialer
	slots  chan struct{}

	mu      sync.Mutex
	session *Session // nil while there is none
	idle    []*pubChannel
}

// NewPublisher returns a Publisher that connects when Run does.
func NewPublisher(d *Dialer) *Publisher {
	return &Publisher{dialer: d, slots: make(chan struct{}, maxChannels)}
}

// Run keeps the publisher's connection up until ctx ends, and returns its cause. A publish under way then ends as
// ErrUnknown.
func (p *Publisher) Run(ctx context.Context) error {
	return Supervise(ctx, p.dialer, func(ctx context.Context, s *Session) error {
		p.use(s)
		defer p.use(nil)
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

func (p *Publisher) use(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.idle = s, nil
}

func (p *Publisher) current() *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == nil || p.session.Err() != nil {
		return nil
	}
	return p.session
}

// Connected reports whether there is a connection to publish on.
func (p *Publisher) Connected() bool { return p.current() != nil }

// Blocked reports whether the broker's resource alarm blocks the connection.
func (p *Publisher) Blocked() bool {
	s := p.current()
	return s != nil && s.Blocked()
}

// Publish sends one message, mandatory and persistent, and returns nil only after the broker confirmed it and did not
// return it. It never waits for a connection: without one it fails with ErrDisconnected. The other errors are
// ErrBlocked, ErrInvalid and ErrTooLarge (nothing was sent), ErrUnroutable, ErrNacked and ErrRefused (the broker does
// not have it), and ErrUnknown. Without a deadline in ctx the dialer's timeout counts.
//
// When ctx ends during the write, the connection is killed: a write the broker does not read cannot be taken back in any
// other way. When ctx ends before the confirm, only the channel is given up.
func (p *Publisher) Publish(ctx context.Context, pub *Publication) error {
	err := p.publish(ctx, pub)
	if err != nil {
		return fmt.Errorf("publish to exchange %q with key %q: %w", pub.Exchange, pub.Key, err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, pub *Publication) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.dialer.o.Timeout)
		defer cancel()
	}
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return fmt.Errorf("wait for a channel: %w", context.Cause(ctx))
	}
	s := p.current()
	switch {
	case s == nil:
		return ErrDisconnected
	case s.Blocked():
		return ErrBlocked
	}
	if err := pub.fits(s.FrameMax()); err != nil {
		return err
	}
	c, err := p.take(ctx, s)
	if err != nil {
		return err
	}
	start := time.Now()
	err = c.publish(ctx, pub)
	if err == nil {
		p.dialer.metrics.confirmed(pub.Kind, time.Since(start))
	}
	p.put(c)
	return err
}

// take returns an idle channel of s or opens one.
func (p *Publisher) take(ctx context.Context, s *Session) (*pubChannel, error) {
	p.mu.Lock()
	for p.session == s && len(p.idle) > 0 {
		c := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if !c.ch.IsClosed() {
			p.mu.Unlock()
			return c, nil
		}
	}
	p.mu.Unlock()
	return openPubChannel(ctx, s)
}

// put makes c available again, or closes it when a late confirm or return could still arrive on it.
func (p *Publisher) put(c *pubChannel) {
	if c.spent {
		// A goroutine, because the answer may take as long as the confirm did; it ends with the call's timeout.
		go func() { _ = c.session.Do(context.Background(), "close a channel", c.ch.Close) }()
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session == c.session && !c.ch.IsClosed() {
		p.idle = append(p.idle, c)
	}
}

// pubChannel carries one publish at a time, so whatever is confirmed, nacked, returned or refused on it is that one: no
// message needs a header to tell returns apart.
type pubChannel struct {
	session *Session
	ch      *amqp.Channel
	returns chan amqp.Return
	closes  chan *amqp.Error
	spent   bool // must not be used again
}

func openPubChannel(ctx context.Context, s *Session) (*pubChannel, error) {
	ch, err := s.Channel(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Do(ctx, "ask for confirms", func() error { return ch.Confirm(false) }); err != nil {
		return nil, err
	}
	// Buffered: the library delivers these from its reading goroutine. One is enough, there is one publish at a time.
	return &pubChannel{
		session: s, ch: ch,
		returns: ch.NotifyReturn(make(chan amqp.Return, 1)),
		closes:  ch.NotifyClose(make(chan *amqp.Error, 1)),
	}, nil
}

func (c *pubChannel) publish(ctx context.Context, pub *Publication) error {
	msg := pub.Msg
	msg.DeliveryMode = amqp.Persistent
	stop := context.AfterFunc(ctx, func() { c.session.fail(&callTimeout{"publish"}) })
	confirm, err := c.ch.PublishWithDeferredConfirm(pub.Exchange, pub.Key, true, false, msg)
	stop()
	if err != nil {
		c.spent = true
		return c.unsent(err)
	}
	select {
	case <-confirm.Done():
	case <-ctx.Done():
		select {
		case <-confirm.Done(): // both: the confirm counts
		default:
			c.spent = true
			return fmt.Errorf("%w: no confirm in time: %w", ErrUnknown, context.Cause(ctx))
		}
	}
	if !confirm.Acked() {
		return c.failure()
	}
	// The broker returns a message before it confirms it, so a return is here by now.
	select {
	case r := <-c.returns:
		return &ReturnedError{Exchange: r.Exchange, Key: r.RoutingKey, Code: int(r.ReplyCode), Text: r.ReplyText}
	default:
		return nil
	}
}

// unsent judges a failed write. The library says ErrClosed before the last frame was written, so the broker cannot have
// the message; after any other error it may.
func (c *pubChannel) unsent(err error) error {
	if errors.Is(err, amqp.ErrClosed) {
		if ended := c.session.Err(); ended != nil {
			return ended
		}
		return fmt.Errorf("%w: the channel was closed", ErrDisconnected)
	}
	return fmt.Errorf("%w: %w", ErrUnknown, c.session.explain(err))
}

// failure tells a nack from the end of the channel: the library reports both as a negative confirm, but announces the
// end first.
func (c *pubChannel) failure() error {
	select {
	case e, ok := <-c.closes:
		c.spent = true
		if ok && e.Server && e.Recover {
			return &RefusedError{Code: e.Code, Text: e.Reason}
		}
		if ok {
			return fmt.Errorf("%w: %w", ErrUnknown, c.session.explain(e))
		}
		return fmt.Errorf("%w: the channel was closed before the confirm", ErrUnknown)
	default:
		return ErrNacked
	}
}
