package http1

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"time"

	"sidecar/internal/budget"
)

const (
	// maxHead bounds everything before the body, interim answers included.
	maxHead = 64 << 10
	// smallAnswer is what every attempt has memory for: so much of a head, and so much of a body that is kept.
	smallAnswer = 4 << 10
	// largeAnswer is what an answer may hold at a time once it is larger than that, the decoding of its body included.
	largeAnswer = 512 << 10
)

// reader is a window over what the app sends: buf[pos:end] has arrived and is not used yet.
type reader struct {
	src      io.Reader
	buf      []byte
	pos, end int

	memory   *budget.Account
	deadline time.Time // of the attempt
	large    bool      // largeAnswer bytes are taken from memory
}

// reserve takes the memory of a large answer, unless it is taken already; it returns false when it is not free.
func (r *reader) reserve() bool {
	r.large = r.large || r.memory.Take(largeAnswer)
	return r.large
}

// await is reserve for the bytes that decide an attempt's result: it waits for memory until the attempt's deadline.
func (r *reader) await() bool {
	if !r.reserve() {
		ctx, cancel := context.WithDeadline(context.Background(), r.deadline)
		defer cancel()
		r.large = r.memory.Wait(largeAnswer, ctx.Done())
	}
	return r.large
}

func (r *reader) reset(src io.Reader) { r.src, r.pos, r.end = src, 0, 0 }

func (r *reader) buffered() []byte { return r.buf[r.pos:r.end] }

// more reads once. It makes room by moving the window, then by growing the buffer up to limit bytes; a window that is
// full at the limit is an error, and so is one that cannot grow because the budget is used up.
func (r *reader) more(limit int) error {
	if r.pos == r.end {
		r.pos, r.end = 0, 0
	}
	if r.end == len(r.buf) && r.pos > 0 {
		r.end = copy(r.buf, r.buf[r.pos:r.end])
		r.pos = 0
	}
	if r.end == len(r.buf) {
		if len(r.buf) >= limit {
			return errTooLong
		}
		if !r.await() {
			return errNoMemory
		}
		grown := make([]byte, min(2*len(r.buf), limit))
		copy(grown, r.buf[:r.end])
		r.buf = grown
	}
	n, err := r.src.Read(r.buf[r.end:])
	r.end += n
	if n > 0 {
		return nil // an error that came with bytes will come again
	}
	return cmp.Or(err, io.ErrNoProgress) // a connection never reads nothing without an error
}

// head returns the next header block up to and including the blank line that ends it, and takes it out of the window.
// It is valid until the next read. Anything that does not begin like HTTP/1 is refused at its first wrong byte, not
// when the time is up.
func (r *reader) head(limit int) ([]byte, error) {
	scanned := 0
	for {
		b := r.buffered()
		if !startsLikeHTTP(b) {
			return nil, errNotHTTP
		}
		var n int
		if n, scanned = headEnd(b, scanned); n > 0 {
			if n > limit {
				return nil, errTooLong
			}
			r.pos += n
			return b[:n], nil
		}
		if len(b) > limit {
			return nil, errTooLong
		}
		if err := r.more(maxHead + 1); err != nil {
			return nil, err
		}
	}
}

const protocol = "HTTP/1."

func startsLikeHTTP(b []byte) bool {
	n := min(len(b), len(protocol))
	return string(b[:n]) == protocol[:n]
}

// headEnd finds the blank line that ends a header block in b. Without one it returns how far it searched, so that
// slowly arriving bytes are not searched again and again.
func headEnd(b []byte, from int) (end, scanned int) {
	for {
		i := bytes.IndexByte(b[from:], '\n')
		if i < 0 {
			return 0, len(b)
		}
		i += from
		rest := b[i+1:]
		switch {
		case len(rest) >= 1 && rest[0] == '\n':
			return i + 2, 0
		case len(rest) >= 2 && rest[0] == '\r' && rest[1] == '\n':
			return i + 3, 0
		case len(rest) == 0, len(rest) == 1 && rest[0] == '\r':
			return 0, i
		}
		from = i + 1
	}
}
