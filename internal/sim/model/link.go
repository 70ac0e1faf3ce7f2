package model

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// conn is one end of a connection in memory. A write never waits, as if the system's buffers had no end: under virtual
// time nothing may hold a lock while it waits for a peer, because time would stop with it.
type conn struct {
	in, out *half
}

// pipe returns the two ends of a connection whose writes take up to latency to arrive.
func pipe(latency time.Duration, random *rand.Rand) (client, server *conn) {
	up, down := newHalf(latency, random.Uint64()), newHalf(latency, random.Uint64())
	return &conn{in: down, out: up}, &conn{in: up, out: down}
}

// half is one direction: what has been written and not read.
type half struct {
	mu      sync.Mutex
	arrived *sync.Cond
	latency time.Duration
	random  *rand.Rand

	chunks  []chunk
	failure error // of every further read
	ended   bool  // no more is written: io.EOF when all has been read
	frozen  bool  // what is written vanishes

	deadline time.Time
	alarm    *time.Timer // wakes the reader at the deadline, or when the next chunk is there
}

type chunk struct {
	at   time.Time // when it is there; zero = at once
	data []byte
}

func newHalf(latency time.Duration, seed uint64) *half {
	h := &half{latency: latency, random: rand.New(rand.NewPCG(seed, 2))}
	h.arrived = sync.NewCond(&h.mu)
	return h
}

func (h *half) write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.failure != nil:
		return 0, syscall.EPIPE
	case h.ended:
		return 0, net.ErrClosed
	case h.frozen:
		return len(p), nil
	}
	var at time.Time
	if h.latency > 0 {
		at = time.Now().Add(time.Duration(h.random.Int64N(int64(h.latency))))
		if n := len(h.chunks); n > 0 && h.chunks[n-1].at.After(at) {
			at = h.chunks[n-1].at // never overtakes
		}
	}
	if n := len(h.chunks); n > 0 && h.chunks[n-1].at.Equal(at) {
		h.chunks[n-1].data = append(h.chunks[n-1].data, p...)
	} else {
		h.chunks = append(h.chunks, chunk{at, append(make([]byte, 0, max(256, len(p))), p...)})
	}
	h.arrived.Broadcast()
	return len(p), nil
}

func (h *half) read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case h.failure != nil:
			return 0, h.failure
		case len(h.chunks) > 0 && !h.chunks[0].at.After(now):
			c := &h.chunks[0]
			n := copy(p, c.data)
			if c.data = c.data[n:]; len(c.data) == 0 {
				h.chunks[0] = chunk{}
				h.chunks = h.chunks[1:]
			}
			return n, nil
		case len(h.chunks) == 0 && h.ended && !h.frozen:
			return 0, io.EOF
		case !h.deadline.IsZero() && !h.deadline.After(now):
			return 0, os.ErrDeadlineExceeded
		}
		h.wakeAt(now)
		h.arrived.Wait()
	}
}

// wakeAt sets the alarm for the next thing that time brings.
func (h *half) wakeAt(now time.Time) {
	var at time.Time
	if len(h.chunks) > 0 {
		at = h.chunks[0].at
	}
	if !h.deadline.IsZero() && (at.IsZero() || h.deadline.Before(at)) {
		at = h.deadline
	}
	switch {
	case at.IsZero():
	case h.alarm == nil:
		h.alarm = time.AfterFunc(at.Sub(now), func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.arrived.Broadcast()
		})
	default:
		h.alarm.Reset(at.Sub(now))
	}
}

func (h *half) setDeadline(t time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deadline = t
	h.arrived.Broadcast()
}

// fail loses what is on its way; reads end with err. nil ends the direction in good order: what is there can be read.
func (h *half) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		h.ended = true
	} else if h.failure == nil {
		h.failure, h.chunks = err, nil
	}
	h.arrived.Broadcast()
}

func (h *half) freeze() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.frozen, h.chunks = true, nil
}

// cut breaks the connection under both ends.
func (c *conn) cut() {
	c.in.fail(syscall.ECONNRESET)
	c.out.fail(syscall.ECONNRESET)
}

// freeze makes the connection half open: neither end receives from the other any more, and neither is notified.
func (c *conn) freeze() {
	c.in.freeze()
	c.out.freeze()
}

func (c *conn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *conn) Write(p []byte) (int, error) { return c.out.write(p) }

// Close ends both directions; the peer can still read what has been written.
func (c *conn) Close() error {
	c.in.fail(net.ErrClosed)
	c.out.fail(nil)
	return nil
}

func (c *conn) SetDeadline(t time.Time) error      { return c.SetReadDeadline(t) }
func (c *conn) SetReadDeadline(t time.Time) error  { c.in.setDeadline(t); return nil }
func (c *conn) SetWriteDeadline(_ time.Time) error { return nil } // a write never waits
func (c *conn) LocalAddr() net.Addr                { return addr{} }
func (c *conn) RemoteAddr() net.Addr               { return addr{} }

type addr struct{}

func (addr) Network() string { return "memory" }
func (addr) String() string  { return "model" }
