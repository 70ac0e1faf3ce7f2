package broker

import (
	"context"
	"sync"

	"sidecar/internal/message"
)

// maxChannels bounds the calls of Publish under way at once: each has a channel to itself.
const maxChannels = 32

// Publisher publishes on a connection of its own: a broker that blocks publishers stops reading from their connections,
// and acks must not wait behind that.
type Publisher struct {
	*publishLink

	slots chan struct{} // a value for each call of Publish that may still begin
}

// publishLink is the connection of a Publisher and of all its shares.
type publishLink struct {
	dialer *Dialer

	mu      sync.Mutex
	session *Session  // nil while there is none
	idle    []*Stream // of the session, with a window of one
}

// NewPublisher returns a Publisher that connects when Run does.
func NewPublisher(d *Dialer) *Publisher {
	return (&Publisher{publishLink: &publishLink{dialer: d}}).Share()
}

// Share returns another Publisher on the same connection, which Run of either keeps up. The messages of one that wait
// for their confirms, for example of a queue without a leader, take no channel from the other.
func (p *Publisher) Share() *Publisher {
	share := &Publisher{publishLink: p.publishLink, slots: make(chan struct{}, maxChannels)}
	for range maxChannels {
		share.slots <- struct{}{}
	}
	return share
}

// Run keeps the publisher's connection up until ctx ends, and returns its cause. A publish under way then ends as
// ErrUnknown. Others may use the connection beside it.
func (p *Publisher) Run(ctx context.Context, others ...Serve) error {
	return Supervise(ctx, p.dialer, append(others, func(ctx context.Context, s *Session) error {
		p.use(s)
		defer p.use(nil)
		return s.watchAlarm(ctx)
	})...)
}

func (p *Publisher) use(s *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.idle = s, nil
}

// current returns the session while it is up, or nil.
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

// Failure says why there is no connection, see Dialer.Failure.
func (p *Publisher) Failure() string { return p.dialer.Failure() }

// Server is the broker's host:port of the URL that was dialled, "" without a connection.
func (p *Publisher) Server() string {
	if s := p.current(); s != nil {
		return s.server
	}
	return ""
}

// Blocked reports whether the broker's resource alarm blocks the connection.
func (p *Publisher) Blocked() bool {
	s := p.current()
	return s != nil && s.Blocked()
}

// Flush writes the messages that lanes keep back, also of those that nothing waits for yet.
func (p *Publisher) Flush() {
	if s := p.current(); s != nil && s.wire.Pending() > 0 {
		if err := s.wire.Flush(); err != nil {
			s.fail(err)
		}
	}
}

// Publish sends one message on a channel of its own, mandatory and persistent, and returns nil only after the broker
// confirmed it and did not return it. It never waits for its connection: without one it fails with ErrDisconnected. The
// other errors are ErrBlocked, ErrBusy, ErrInvalid, ErrTooLarge and ErrNoRequester (nothing was sent), ErrUnroutable,
// ErrNacked and ErrRefused (the broker does not have it), and ErrUnknown. Without a deadline in ctx the dialer's
// timeout counts. Before a direct reply it waits for an answer on another connection, which it may have to make.
//
// When ctx ends during the write, the connection is killed: a write the broker does not read cannot be taken back in
// any other way. When ctx ends before the confirm, only the channel is given up.
func (p *Publisher) Publish(ctx context.Context, pub *message.Publication) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.dialer.o.Timeout)
		defer cancel()
	}
	if err := p.publish(ctx, pub); err != nil {
		return failed(pub, err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, pub *message.Publication) error {
	s := p.current()
	if s == nil {
		return ErrDisconnected
	}
	if err := s.findRequester(ctx, pub); err != nil {
		return err
	}
	if _, err := await(ctx, s, p.slots); err != nil {
		return err
	}
	defer func() { p.slots <- struct{}{} }()
	c, err := p.acquire(ctx, s)
	if err != nil {
		return err
	}
	r, err := c.send(ctx, pub)
	if err == nil {
		err = r.await(ctx)
	}
	p.put(c)
	return err
}

// acquire returns an idle channel or opens one. A channel that opens too late is kept.
func (p *Publisher) acquire(ctx context.Context, s *Session) (*Stream, error) {
	if c := p.pop(s); c != nil {
		return c, nil
	}
	return ask(ctx, s, func() (*Stream, error) { return openStream(s, 1) }, p.put)
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
	open := func() (*Stream, error) { return openStream(s, streamWindow) }
	return ask(ctx, s, open, (*Stream).Close)
}

func (p *Publisher) pop(s *Session) *Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(p.idle); n > 0 && p.session == s; n-- {
		c := p.idle[n-1]
		p.idle = p.idle[:n-1]
		if !c.Ended() {
			return c
		}
		if !c.closed() {
			go c.Close()
		}
	}
	return nil
}

// put makes c available again. One that must not be used again is closed in the background: the answer may be late, but
// comes at the latest when the session ends.
func (p *Publisher) put(c *Stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case c.closed():
	case c.Ended() || c.session != p.session:
		go c.Close()
	default:
		p.idle = append(p.idle, c)
	}
}
