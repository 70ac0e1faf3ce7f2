package http1

import (
	"context"
	"crypto/tls"
	"time"

	"sidecar/internal/message"
)

const (
	// smallBody is copied behind the head so that both leave in one write; a larger one is sent by writev.
	smallBody = 4 << 10
	// inlineBody fits the socket buffers of an app that does not read: writing it cannot block for long. While a larger
	// one is written, another goroutine must read, because the app may answer and stop reading.
	inlineBody = 64 << 10
	// writeGrace is how long a write may still be under way when the answer is complete. Usually it is over and its
	// goroutine has just not run yet.
	writeGrace = 50 * time.Millisecond
)

// Client is one app and the idle connections to it. It is safe for concurrent use.
type Client struct {
	dialer dialer
	pool   *pool
}

// NewClient returns a Client for ep that keeps up to maxIdle connections open for at most idle. base is the
// configuration for https; nil means the system's roots.
func NewClient(ep *Endpoint, base *tls.Config, maxIdle int, idle time.Duration) *Client {
	return &Client{dialer: newDialer(ep, base), pool: &pool{limit: maxIdle, ttl: idle}}
}

// Close closes the idle connections. Exchanges under way finish, and then their connections are closed.
func (c *Client) Close() { c.pool.close() }

// Do sends x.Head and body and reads the answer into x. It returns FailureNone once the app has answered, else what
// went wrong and why. The end of ctx interrupts it at once; ctx should be one long-lived context shared by all calls,
// because every connection is bound to the context it serves.
func (c *Client) Do(ctx context.Context, x *Exchange, body []byte) (message.Failure, error) {
	x.body = body
	if idle := c.pool.get(ctx, time.Now()); idle != nil {
		if r, sent := c.over(idle, x); sent {
			return r.of(ctx)
		}
	}
	// Either there was no idle connection, or the one taken died before it accepted a single byte: only then may the
	// request go out on another.
	fresh, err := c.dialer.dial(ctx, x.deadline)
	if err != nil {
		return notConnected(ctx, err)
	}
	fresh.bind(ctx)
	r, sent := c.over(fresh, x)
	if !sent {
		return message.FailureRefused, errRefusedByReset
	}
	return r.of(ctx)
}

// Once is Do without a body on a connection of its own, which is closed: its answer can never be taken for the answer
// to another request.
func (c *Client) Once(ctx context.Context, x *Exchange) (message.Failure, error) {
	conn, err := c.dialer.dial(ctx, x.deadline)
	if err != nil {
		return notConnected(ctx, err)
	}
	defer conn.close()
	conn.bind(ctx)
	conn.rw.SetDeadline(x.deadline)
	_, _ = conn.rw.Write(x.Head) // an app may answer before it has read everything; if it does not, the read says why
	if err := x.Answer.Read(conn.rw, x.Header); err != nil {
		return classify(conn, err).of(ctx)
	}
	return message.FailureNone, nil
}

// Connect reports whether the app accepts a connection before deadline. It sends nothing, not even a TLS handshake.
func (c *Client) Connect(ctx context.Context, deadline time.Time) (message.Failure, error) {
	d := c.dialer
	d.tls = nil
	conn, err := d.dial(ctx, deadline)
	if err != nil {
		return notConnected(ctx, err)
	}
	conn.close()
	return message.FailureNone, nil
}

// over runs the exchange over conn and disposes of conn. sent is false only if provably not one byte of the request
// was written.
func (c *Client) over(conn *conn, x *Exchange) (r result, sent bool) {
	conn.rw.SetDeadline(x.deadline) // on a connection that has gone the write says so
	if len(x.body) > inlineBody {
		return c.large(conn, x)
	}
	w := x.write(conn)
	if w.nothing(conn) {
		return unsent(conn, w.err)
	}
	// A failed write does not end the exchange: an app may answer before it has read everything, and close.
	err := x.Answer.Read(conn.rw, x.Header)
	return c.finish(conn, x, err, w.err == nil), true
}

// large writes from a goroutine of its own and reads at the same time.
func (c *Client) large(conn *conn, x *Exchange) (r result, sent bool) {
	written := make(chan write, 1)
	go func() { written <- x.write(conn) }()
	err := x.Answer.Read(conn.rw, x.Header)
	w := join(conn, written, err == nil)
	if w.nothing(conn) {
		if err == nil {
			err = errUnasked
		}
		return unsent(conn, err) // join may have stopped the writer itself: its error says nothing
	}
	return c.finish(conn, x, err, w.err == nil), true
}

// finish returns conn to the pool, or closes it, and names what went wrong.
func (c *Client) finish(conn *conn, x *Exchange, err error, wrote bool) result {
	switch {
	case err != nil:
		conn.close()
		return classify(conn, err)
	case x.Answer.Reusable && wrote:
		c.pool.put(conn, time.Now(), x.Answer.fields.keepAlive)
	default:
		conn.close()
	}
	return result{}
}

// unsent ends an exchange of which nothing was written. sent is false if the reason is that the connection was dead
// already: another may do better.
func unsent(conn *conn, err error) (r result, sent bool) {
	defer conn.close()
	r = classify(conn, err)
	return r, r.failure != message.FailureReset
}
