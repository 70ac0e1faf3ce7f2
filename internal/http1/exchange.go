package http1

import (
	"net"
	"time"

	"sidecar/internal/budget"
)

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
	x.deadline = deadline
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
