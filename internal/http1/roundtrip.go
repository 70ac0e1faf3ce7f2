package http1

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"sidecar/internal/budget"
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
	endpoint *Endpoint
	tls      *tls.Config // nil = plain
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
	pool     *pool
}

// NewClient returns a Client for ep that keeps up to maxIdle connections open for at most idle. base is the
// configuration for https; nil means the system's roots. It never consults the environment for a proxy.
func NewClient(ep *Endpoint, base *tls.Config, maxIdle int, idle time.Duration) *Client {
	c := &Client{endpoint: ep, connect: new(net.Dialer).DialContext, pool: &pool{limit: maxIdle, ttl: idle}}
	if ep.secure {
		c.tls = clientTLS(base, ep.serverName)
	}
	return c
}

// Close closes the idle connections. Exchanges under way finish, and then their connections are closed.
func (c *Client) Close() { c.pool.close() }

// Do sends x.Head and body and reads the answer into x. It returns FailureNone once the app has answered, else what
// went wrong and why. The end of ctx interrupts it at once; ctx should be one long-lived context shared by all calls,
// because every connection is bound to the context it serves.
func (c *Client) Do(ctx context.Context, x *Exchange, body []byte) (message.Failure, error) {
	x.body = body
	if idle := c.pool.get(ctx, time.Now()); idle != nil {
		if f, sent, err := c.over(ctx, idle, x); sent {
			return f, err
		}
	}
	// Either there was no idle connection, or the one taken died before it accepted a single byte: only then may the
	// request go out on another.
	fresh, err := c.dial(ctx, x.deadline)
	if err != nil {
		return notConnected(ctx, err)
	}
	fresh.bind(ctx)
	f, sent, err := c.over(ctx, fresh, x)
	if !sent {
		return message.FailureRefused, ErrRefusedByReset
	}
	return f, err
}

// Connect reports whether a request could be sent before deadline, and sends none. A TLS handshake belongs to that: an
// app with which every handshake fails would otherwise be there and away in turns.
func (c *Client) Connect(ctx context.Context, deadline time.Time) (message.Failure, error) {
	conn, err := c.dial(ctx, deadline)
	if err != nil {
		return notConnected(ctx, err)
	}
	conn.close()
	return message.FailureNone, nil
}

// over runs the exchange over conn and disposes of conn. sent is false only if provably not one byte of the request
// was written, because the connection was dead already: another may do better.
func (c *Client) over(ctx context.Context, conn *conn, x *Exchange) (f message.Failure, sent bool, err error) {
	conn.rw.SetDeadline(x.deadline) // on a connection that has gone the write says so
	w, err := c.exchange(conn, x)
	if err == nil && w.err == nil && x.Answer.Reusable {
		c.pool.put(conn, time.Now(), x.Answer.fields.keepAlive)
		return message.FailureNone, true, nil
	}
	defer conn.close()
	if err == nil {
		return message.FailureNone, true, nil
	}
	f, err = classify(ctx, conn, err)
	return f, f != message.FailureReset || !w.nothing(conn), err
}

// exchange sends the request and reads the answer. Without a byte of the request there is no answer, but an error.
func (c *Client) exchange(conn *conn, x *Exchange) (w write, err error) {
	if len(x.body) <= inlineBody {
		if w = x.write(conn); w.nothing(conn) {
			return w, w.err
		}
		// A failed write does not end the exchange: an app may answer before it has read everything, and close.
		return w, x.Answer.Read(conn.rw, x.Header)
	}
	written := make(chan write, 1)
	go func() { written <- x.write(conn) }()
	err = x.Answer.Read(conn.rw, x.Header)
	w = join(conn, written, err == nil)
	if err == nil && w.nothing(conn) { // join may have stopped the writer itself: its error says nothing
		err = errUnasked
	}
	return w, err
}

// Exchange is one request and its answer, with the memory they take. Keep it in a pool: idle connections then hold no
// buffers, and an app that closes after every answer costs none.
type Exchange struct {
	Head   []byte // of the request, up to and including the blank line; filled by the caller
	Answer Answer
	Header Header // reads the answer's fields

	body     []byte
	deadline time.Time
	parts    [2][]byte
	vector   net.Buffers
}

// keptBuffer is the size up to which a request's grown buffer is kept for the next exchange.
const keptBuffer = 32 << 10

// NewExchange returns an Exchange whose answer is read by h.
func NewExchange(h Header) *Exchange {
	x := &Exchange{Header: h, Head: make([]byte, 0, 2<<10)}
	x.Answer.in.buf = make([]byte, smallAnswer)
	return x
}

// Begin prepares x for an exchange that must end at deadline. An answer of more than a few KiB takes its bytes from
// memory; nil bounds nothing.
func (x *Exchange) Begin(memory *budget.Account, deadline time.Time) {
	x.deadline, x.Answer.Limit = deadline, 0
	x.Answer.in.memory, x.Answer.in.deadline = memory, deadline
}

// End gives the memory back and drops every reference to the message. It reports whether x may be used again: buffers
// that have grown large are left to the garbage collector.
func (x *Exchange) End() bool {
	if x.Answer.in.large {
		x.Answer.in.memory.Give(largeAnswer)
		return false
	}
	x.body, x.parts, x.vector = nil, [2][]byte{}, nil
	x.Answer.in.src, x.Answer.in.memory = nil, nil
	return cap(x.Head) <= keptBuffer
}

// write is the result of writing a request.
type write struct {
	n   int64
	err error
}

// nothing reports whether provably no byte went out. TLS may have sent a part of a record before it failed.
func (w write) nothing(c *conn) bool { return w.err != nil && w.n == 0 && !c.secure }

func (x *Exchange) write(c *conn) write {
	if len(x.body) <= smallBody {
		head := len(x.Head)
		whole := append(x.Head, x.body...)
		x.Head = whole[:head] // grown, perhaps, but still the head alone: it may have to go out again
		n, err := c.rw.Write(whole)
		return write{int64(n), err}
	}
	x.parts = [2][]byte{x.Head, x.body}
	x.vector = net.Buffers(x.parts[:])
	n, err := x.vector.WriteTo(c.rw)
	return write{n, err}
}

// join waits for the writer: the body is the caller's memory again as soon as Do returns.
func join(c *conn, written <-chan write, answered bool) write {
	if answered {
		select {
		case w := <-written:
			return w
		case <-time.After(writeGrace):
		}
	}
	c.raw.SetWriteDeadline(time.Unix(1, 0))
	return <-written
}
