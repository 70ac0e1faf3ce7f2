package http1

import (
	"net"
	"time"
)

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
