package http1

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// conn is one connection to the app, used by one attempt at a time.
type conn struct {
	rw     net.Conn // what requests are written to
	raw    net.Conn // the socket below; the same as rw without TLS
	secure bool

	sys  syscall.RawConn
	look func(fd uintptr) // sets idle; made once, so that the check allocates nothing
	idle bool

	expires time.Time // when an idle connection is no longer trusted

	done        <-chan struct{} // of the context bound
	unbind      func() bool
	interrupted atomic.Bool
}

// newConn returns a connection over the socket raw; secure is the TLS connection above it, nil without TLS.
func newConn(raw, secure net.Conn) *conn {
	c := &conn{raw: raw, rw: cmp.Or(secure, raw), secure: secure != nil}
	if s, ok := raw.(syscall.Conn); ok {
		c.sys, _ = s.SyscallConn()
	}
	c.look = func(fd uintptr) { c.idle = silent(fd) }
	return c
}

// bind makes the end of ctx close the connection and so cut every call on it short. It reports false if the context
// bound before has ended: then the connection is gone.
//
// Contexts are compared by their Done channel. Comparing the interfaces could panic, and binding anew for every
// message would allocate and take the context's lock each time.
func (c *conn) bind(ctx context.Context) bool {
	done := ctx.Done()
	if c.unbind != nil {
		if c.done == done {
			return true
		}
		if !c.unbind() {
			return false
		}
		c.unbind = nil
	}
	c.done = done
	if done != nil {
		c.unbind = context.AfterFunc(ctx, func() {
			c.interrupted.Store(true)
			c.raw.Close()
		})
	}
	return true
}

// quiet reports whether an idle connection is still open and has nothing to say. A byte that arrives without a
// question belongs to an answer without a request: the next answer read here would be taken for another message's.
func (c *conn) quiet() bool {
	c.idle = false
	if c.sys == nil || c.sys.Control(c.look) != nil || !c.idle {
		return false
	}
	return !c.secure || c.drained()
}

// drained reports whether the TLS layer holds no decrypted or complete record of its own: those are out of the
// socket's sight. A read whose deadline has passed never touches the socket, it only sees what is already here.
func (c *conn) drained() bool {
	c.rw.SetReadDeadline(time.Unix(1, 0))
	var b [1]byte
	n, err := c.rw.Read(b[:])
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
}

// retire closes an idle connection politely: a TLS peer gets a close_notify.
func (c *conn) retire() { c.end(c.rw) }

// close gives the connection up below TLS: saying goodbye could block on a peer that no longer reads.
func (c *conn) close() { c.end(c.raw) }

func (c *conn) end(rw net.Conn) {
	if c.unbind != nil {
		c.unbind()
	}
	rw.Close()
}

// clientTLS is the configuration for https.
func clientTLS(base *tls.Config, serverName string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		cfg = base.Clone()
	}
	// Offering h2 would let the server choose a protocol that this client does not have.
	cfg.NextProtos = []string{"http/1.1"}
	cfg.ServerName = cmp.Or(cfg.ServerName, serverName)
	if cfg.ClientSessionCache == nil {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	}
	return cfg
}

// dial connects, TLS handshake included, before deadline. Whatever it fails with, no byte of a request was sent.
func (c *Client) dial(ctx context.Context, deadline time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	raw, err := c.connect(ctx, c.endpoint.network, c.endpoint.address)
	if err != nil {
		return nil, err
	}
	if c.tls == nil {
		return newConn(raw, nil), nil
	}
	secure := tls.Client(raw, c.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return newConn(raw, secure), nil
}
