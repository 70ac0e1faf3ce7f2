package broker

import (
	"context"
	"fmt"
	"sync"
)

// pool holds the channels of a publisher's session.
//
// During a resource alarm the broker stops reading from a connection in the middle of its first message and takes that
// message when the alarm is over. So on a new session one publish goes alone until anything was answered: otherwise each
// reconnect during an alarm would leave as many messages behind as there are channels, each to be published once more
// when the alarm ends.
type pool struct {
	session *Session

	probe  chan struct{} // held by the one that goes alone
	once   sync.Once
	proven chan struct{} // closed: the broker has answered a publish

	mu   sync.Mutex
	idle []*pubChannel
}

func newPool(s *Session) *pool {
	return &pool{session: s, probe: make(chan struct{}, 1), proven: make(chan struct{})}
}

// prove lets everybody in.
func (l *pool) prove() { l.once.Do(func() { close(l.proven) }) }

// enter waits until a publish may begin; an alarm refuses it at once.
func (l *pool) enter(ctx context.Context) (leave func(), err error) {
	for {
		blocked, changed := l.session.watchBlocked()
		if blocked {
			return nil, ErrBlocked
		}
		select {
		case <-l.proven:
			return func() {}, nil
		default:
		}
		select {
		case <-l.proven:
			return func() {}, nil
		case l.probe <- struct{}{}:
			if l.session.Blocked() { // it was this that ended the probe before us
				<-l.probe
				return nil, ErrBlocked
			}
			return func() { <-l.probe }, nil
		case <-changed:
		case <-l.session.Done():
			return nil, l.session.Err()
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
		}
	}
}

// take returns an idle channel or opens one. It waits no longer than ctx; a channel that opens later is kept.
func (l *pool) take(ctx context.Context) (*pubChannel, error) {
	if c := l.pop(); c != nil {
		return c, nil
	}
	type result struct {
		c   *pubChannel
		err error
	}
	opened := make(chan result) // unbuffered: either we take it or it goes to the pool
	go func() {
		c, err := openPubChannel(l.session)
		select {
		case opened <- result{c, err}:
		case <-ctx.Done():
			if err == nil {
				l.put(c)
			}
		}
	}()
	select {
	case r := <-opened:
		return r.c, r.err
	case <-ctx.Done():
		if l.session.Blocked() {
			return nil, ErrBlocked
		}
		return nil, fmt.Errorf("%w: %w", ErrBusy, context.Cause(ctx))
	}
}

func (l *pool) pop() *pubChannel {
	l.mu.Lock()
	defer l.mu.Unlock()
	for n := len(l.idle); n > 0; n-- {
		c := l.idle[n-1]
		l.idle = l.idle[:n-1]
		if !c.ch.IsClosed() {
			return c
		}
	}
	return nil
}

// put makes c available again, or closes it when a late confirm or return could still arrive on it.
func (l *pool) put(c *pubChannel) {
	if c.spent {
		// In the background, because the answer may take as long as the confirm did. It ends at the latest when the
		// session does.
		go c.close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.ch.IsClosed() {
		l.idle = append(l.idle, c)
	}
}
