package dispatch

import (
	"net"
	"time"

	"sidecar/internal/message"
)

const (
	// smallBody is copied behind the head so that both leave in one write; a larger one goes out by writev.
	smallBody = 4 << 10
	// inlineBody fits the socket buffers of an app that does not read: writing it cannot block for long. While a larger
	// one is written somebody must listen, because the app may answer and stop reading.
	inlineBody = 64 << 10
	// writeGrace is how long a write may still be under way when the answer is complete. Usually it is over and its
	// goroutine has just not run yet.
	writeGrace = 50 * time.Millisecond
)

// over runs the attempt over c, fills out and disposes of c. It reports false, leaving out alone, only if provably not
// one byte of the request was written.
func (x *attempt) over(c *conn) bool {
	c.rw.SetDeadline(x.deadline) // on a connection that has gone the write says so
	if len(x.body) > inlineBody {
		return x.large(c)
	}
	w := x.write(c)
	if w.nothing(c) {
		return x.unsent(c, w.err)
	}
	// A failed write does not end the attempt: an app may answer before it has read everything, and close.
	err := x.answer.read(c.rw)
	x.finish(c, err, w.err == nil)
	return true
}

// large writes from a goroutine of its own and reads at the same time.
func (x *attempt) large(c *conn) bool {
	written := make(chan write, 1)
	go func() { written <- x.write(c) }()
	err := x.answer.read(c.rw)
	w := join(c, written, err == nil)
	if w.nothing(c) {
		if err == nil {
			err = errUnasked
		}
		return x.unsent(c, err) // join may have stopped the writer itself: its error says nothing
	}
	x.finish(c, err, w.err == nil)
	return true
}

// join waits for the writer: the body is the caller's memory again as soon as Dispatch returns.
func join(c *conn, written <-chan write, answered bool) write {
	if answered {
		grace := time.NewTimer(writeGrace)
		defer grace.Stop()
		select {
		case w := <-written:
			return w
		case <-grace.C:
		}
	}
	c.raw.SetWriteDeadline(time.Unix(1, 0))
	return <-written
}

// write is what became of writing a request.
type write struct {
	n   int64
	err error
}

// nothing reports whether provably no byte went out. TLS may have sent a part of a record before it failed.
func (w write) nothing(c *conn) bool { return w.err != nil && w.n == 0 && !c.secure }

func (x *attempt) write(c *conn) write {
	if len(x.body) <= smallBody {
		head := len(x.request.out)
		whole := append(x.request.out, x.body...)
		x.request.out = whole[:head] // grown, perhaps, but still the head alone: it may have to go out again
		n, err := c.rw.Write(whole)
		return write{int64(n), err}
	}
	x.parts = [2][]byte{x.request.out, x.body}
	x.vector = net.Buffers(x.parts[:])
	n, err := x.vector.WriteTo(c.rw)
	return write{n, err}
}

// unsent ends an attempt of which nothing was written. It reports false if the reason is that the connection was dead
// already: another may do better.
func (x *attempt) unsent(c *conn, err error) bool {
	defer c.close()
	f, cause := classify(c, err)
	if f == message.FailureReset {
		return false
	}
	x.fail(f, cause)
	return true
}

// finish turns the answer, or the lack of one, into the outcome.
func (x *attempt) finish(c *conn, err error, wrote bool) {
	a := &x.answer
	if err != nil {
		c.close()
		x.fail(classify(c, err))
		return
	}
	if a.reusable && wrote {
		x.target.pool.put(c, time.Now(), a.keep)
	} else {
		c.close()
	}
	a.report(&x.out, x.target.retryAfterMax)
}

func (x *attempt) fail(f message.Failure, cause error) {
	x.out.Failure, x.out.Err = f, cause
	if f == message.FailureInterrupted {
		interrupted(x.ctx, &x.out)
	}
}
