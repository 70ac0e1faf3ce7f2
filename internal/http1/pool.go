package http1

import (
	"context"
	"slices"
	"sync"
	"time"
)

// pool keeps idle connections, last in first out: under a falling load the ones below age and are closed, while those
// on top stay fresh.
type pool struct {
	limit int
	ttl   time.Duration

	mu     sync.Mutex
	idle   []*conn
	timer  *time.Timer // runs reap while anything is idle; nil otherwise
	closed bool
}

// get returns a connection that was open and silent a moment ago, bound to ctx, or nil.
func (p *pool) get(ctx context.Context, now time.Time) *conn {
	for {
		p.mu.Lock()
		last := len(p.idle) - 1
		if last < 0 {
			p.mu.Unlock()
			return nil
		}
		c := p.idle[last]
		p.idle[last] = nil
		p.idle = p.idle[:last]
		p.mu.Unlock()
		// The check comes last: every instruction after it widens the window in which the app may close the connection.
		if now.Before(c.expires) && c.bind(ctx) && c.quiet() {
			return c
		}
		c.close()
	}
}

// put takes c back for at most keep, and never longer than the pool's own limit.
func (p *pool) put(c *conn, now time.Time, keep time.Duration) {
	c.expires = now.Add(min(keep, p.ttl))
	p.mu.Lock()
	full := p.closed || len(p.idle) >= p.limit
	if !full {
		p.idle = append(p.idle, c)
		if p.timer == nil {
			p.timer = time.AfterFunc(p.ttl, p.reap)
		}
	}
	p.mu.Unlock()
	if full {
		c.close()
	}
}

// reap closes what has expired, so that the app is not left holding unused connections.
func (p *pool) reap() {
	p.mu.Lock()
	now := time.Now()
	var old []*conn
	p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
		expired := !now.Before(c.expires)
		if expired {
			old = append(old, c)
		}
		return expired
	})
	if len(p.idle) > 0 {
		p.timer.Reset(p.ttl)
	} else {
		p.timer = nil
	}
	p.mu.Unlock()
	for _, c := range old {
		c.retire()
	}
}

func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	idle := p.idle
	p.idle = nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	for _, c := range idle {
		c.retire()
	}
}
