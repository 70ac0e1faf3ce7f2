package broker

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// maxChannels bounds the publishes under way at once: each has a channel to itself.
const maxChannels = 32

// Publisher publishes on a connection of its own: a broker that blocks publishers stops reading from their connections,
// and acks must not wait behind that.
type Publisher struct {
	dialer *Dialer
	slots  chan struct{}
	greet  Greeting // see Greet; may be nil

	mu   sync.Mutex
	pool *pool // of the session that stands; nil while there is none
}

// NewPublisher returns a Publisher that connects when Run does.
func NewPublisher(d *Dialer) *Publisher {
	return &Publisher{dialer: d, slots: make(chan struct{}, maxChannels)}
}

// Greeting prepares what somebody wants to do on a new connection, before anything is published on it: during a
// resource alarm the broker reads nothing more after the first publish. What it returns runs beside the publishing and
// ends with its context, which ends with the connection.
type Greeting func(context.Context, *Session) (beside func(), err error)

// Greet sets what happens on every connection that is made. It has to be set before Run.
func (p *Publisher) Greet(g Greeting) { p.greet = g }

// Run keeps the publisher's connection up until ctx ends, and returns its cause. A publish under way then ends as
// ErrUnknown.
func (p *Publisher) Run(ctx context.Context) error {
	return Supervise(ctx, p.dialer, func(ctx context.Context, s *Session) error {
		if p.greet != nil {
			beside, err := p.greet(ctx, s)
			if err != nil {
				return err
			}
			var greeting sync.WaitGroup
			greeting.Go(beside)
			defer greeting.Wait()
		}
		p.use(newPool(s))
		defer p.use(nil)
		<-ctx.Done()
		return context.Cause(ctx)
	})
}

func (p *Publisher) use(l *pool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pool = l
}

func (p *Publisher) current() *pool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pool == nil || p.pool.session.Err() != nil {
		return nil
	}
	return p.pool
}

// Connected reports whether there is a connection to publish on.
func (p *Publisher) Connected() bool { return p.current() != nil }

// Blocked reports whether the broker's resource alarm blocks the connection.
func (p *Publisher) Blocked() bool {
	l := p.current()
	return l != nil && l.session.Blocked()
}

// Publish sends one message, mandatory and persistent, and returns nil only after the broker confirmed it and did not
// return it. It never waits for a connection: without one it fails with ErrDisconnected. The other errors are
// ErrBlocked, ErrBusy, ErrInvalid and ErrTooLarge (nothing was sent), ErrUnroutable, ErrNacked and ErrRefused (the broker does
// not have it), and ErrUnknown. Without a deadline in ctx the dialer's timeout counts.
//
// When ctx ends during the write, the connection is killed: a write the broker does not read cannot be taken back in any
// other way. When ctx ends before the confirm, only the channel is given up.
func (p *Publisher) Publish(ctx context.Context, pub *Publication) error {
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.dialer.o.Timeout)
		defer cancel()
	}
	if err := p.publish(ctx, pub); err != nil {
		return fmt.Errorf("publish to exchange %q with key %q: %w", pub.Exchange, pub.Key, err)
	}
	return nil
}

func (p *Publisher) publish(ctx context.Context, pub *Publication) error {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
	}
	l := p.current()
	if l == nil {
		return ErrDisconnected
	}
	if err := pub.fits(l.session.FrameMax()); err != nil {
		return err
	}
	leave, err := l.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c, err := l.take(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	err = c.publish(ctx, pub)
	if err == nil {
		p.dialer.metrics.confirmed(pub.Kind, time.Since(start))
	}
	if c.answered {
		l.prove()
	}
	l.put(c)
	return err
}
