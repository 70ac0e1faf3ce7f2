package publish

import (
	"context"
	"net/http"
	"time"
)

// What is taken from the account beside the bytes themselves, in bytes.
const (
	// costOfMessage is what a message takes while it is under way: goroutine, buffers of its connection, properties.
	costOfMessage = 8 << 10
	// costOfHeader is what one header takes beside its bytes, in the map of package http and in the table of the message.
	costOfHeader = 256
	// firstBuffer is where a buffer begins.
	firstBuffer = 4 << 10
)

var (
	errNoMemory = unavailable(busy, "There is no memory for this message at present (SIDECAR_MEMORY). Nothing was sent.")
	errNeverFit = &failure{code: tooLarge, status: http.StatusRequestEntityTooLarge,
		detail: "Reading this message needs more memory than half of SIDECAR_MEMORY. Nothing was sent."}
)

// room is the memory that one message holds of the account Memory while it is read and published.
type room struct {
	server   *Server
	w        http.ResponseWriter // of its request
	wait     bool                // for memory, up to the timeout: messages of a batch do
	taken    int64               // in bytes
	arriving *arrival            // nil when all of it came at once
}

// take takes n bytes more.
func (r *room) take(n int64) *failure {
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

// await takes n bytes when they become free soon: because slow bodies are ended for them, or, in a batch, because messages
// under way return theirs. Of all batches that hold a part of a line only one may wait for more: they would wait for each
// other.
func (r *room) await(n int64) bool {
	s, patience := r.server, time.Duration(0)
	if s.arrivals.end(r, n) {
		patience = slowAfter
	}
	if r.wait && r.taken == 0 {
		patience = s.o.Timeout
	} else if r.wait {
		select {
		case s.growing <- struct{}{}:
			defer func() { <-s.growing }()
			patience = s.o.Timeout
		default:
		}
	}
	if patience == 0 {
		return false
	}
	_ = s.arrivals.pause(r) // it makes no progress, but that is not its client's fault
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.o.Memory.Wait(n, ctx.Done())
}

func (r *room) give(n int64) {
	r.server.o.Memory.Give(n)
	r.taken -= n
}

func (r *room) free() { r.give(r.taken) }

// grow returns a buffer with the content of b that has a capacity of at least least bytes, and of at most most. b and the new
// one are both held while the content is copied.
func (r *room) grow(b []byte, least, most int64) ([]byte, *failure) {
	size := max(least, min(2*int64(cap(b)), most))
	if f := r.take(size); f != nil {
		return nil, f
	}
	grown := make([]byte, len(b), size)
	copy(grown, b)
	r.give(int64(cap(b)))
	return grown, nil
}

// costOfHeaders is what a message takes that comes with these headers.
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
