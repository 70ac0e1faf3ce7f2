package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Memory besides the bytes themselves, in bytes.
const (
	// costOfMessage is for a message under way: goroutine, buffers of its connection, properties.
	costOfMessage = 8 << 10
	// costOfHeader is for one header, in the map of package http and in the table of the message.
	costOfHeader = 256
	// firstBuffer is the smallest buffer.
	firstBuffer = 4 << 10
)

var (
	errTooLarge = fail(tooLarge, "The body is larger than SIDECAR_PUBLISH_MAX_BODY.")
	errNoMemory = fail(busy, "No memory is free for this message now (SIDECAR_MEMORY). Nothing was sent.")
	errNeverFit = fail(tooLarge, "Reading this message needs more memory than half of SIDECAR_MEMORY. Nothing was sent.")
)

// room is the memory that one message holds of the account Memory while it is read and published.
type room struct {
	server   *Server
	w        http.ResponseWriter // of its request
	wait     bool                // for memory, up to the timeout: messages of a batch do
	taken    int64               // in bytes
	arriving *arrival            // nil when all of it came at once
}

// reserve takes n bytes more.
func (r *room) reserve(n int64) *failure {
	m := r.server.o.Memory
	if r.taken > 0 && r.taken+n > m.Limit()/2 { // an account may not hold more
		return errNeverFit
	}
	if !m.Take(n) && !r.await(n) {
		return errNoMemory
	}
	r.taken += n
	return nil
}

// await takes n bytes when they become free soon: because slow bodies are ended, or, in a batch, because messages under
// way return theirs. Of all batches that hold a part of a line only one may wait for more: they would wait for each
// other.
func (r *room) await(n int64) bool {
	s, patience := r.server, time.Duration(0)
	if s.arrivals.end(r, n) {
		patience = slowAfter
	}
	if r.wait && r.taken == 0 {
		patience = s.o.Timeout
	} else if r.wait && s.growing.Enter() {
		defer s.growing.Leave()
		patience = s.o.Timeout
	}
	if patience == 0 {
		return false
	}
	_ = s.arrivals.pause(r) // the body makes no progress meanwhile, which is not its client's fault
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.o.Memory.Wait(n, ctx.Done())
}

func (r *room) give(n int64) {
	r.server.o.Memory.Give(n)
	r.taken -= n
}

func (r *room) free() { r.give(r.taken) }

// read reads everything into b, which may be nil, up to longest bytes. The buffer grows with the bytes that arrive: an
// announced length alone costs nothing. After a failure that ends a batch the rest cannot be read.
func (r *room) read(b []byte, from io.Reader, longest int64) (_ []byte, f *failure) {
	defer func() {
		if slow := r.server.arrivals.pause(r); slow != nil {
			f = slow
		}
	}()
	most := longest + 1 // one byte more shows that there is more
	for {
		if len(b) == cap(b) {
			if b, f = r.grow(b, min(firstBuffer, most), most); f != nil {
				return nil, f
			}
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) > longest:
			return nil, errTooLarge
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return nil, errBroken
		}
		r.server.arrivals.progress(r, len(b))
	}
}

// grow returns a buffer with the content of b that has a capacity of at least least bytes, and of at most most. b and
// the new one are both held while the content is copied.
func (r *room) grow(b []byte, least, most int64) ([]byte, *failure) {
	size := max(least, min(2*int64(cap(b)), most))
	if f := r.reserve(size); f != nil {
		return nil, f
	}
	grown := make([]byte, len(b), size)
	copy(grown, b)
	r.give(int64(cap(b)))
	return grown, nil
}

// costOfHeaders returns the memory of a message with these headers, in bytes.
func costOfHeaders(h map[string][]string) int64 {
	cost := int64(costOfMessage)
	for name, values := range h {
		cost += costOfHeader + int64(len(name))
		for _, v := range values {
			cost += 16 + 2*int64(len(v)) // percent-decoding copies it
		}
	}
	return cost
}
