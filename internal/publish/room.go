package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
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
	errTooLarge = fail(tooLarge, "The body is larger than SIDECAR_MAX_BODY.")
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
	s.o.Publisher.Flush()   // messages that are kept back would return no memory
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

// A body is slow when less than slowBytes of it have arrived for slowAfter.
const (
	slowAfter = time.Second
	slowBytes = 64 << 10
)

var errSlowest = ending(fail(slow,
	"The body came too slowly, and other messages needed the memory that it held. Nothing was sent."))

// arrivals are the bodies and lines of which a part has arrived. When there is no memory for another one, the slowest
// are ended: connections that send a little and stop must not block the others.
type arrivals struct {
	slowAfter time.Duration // the constant

	mu  sync.Mutex
	all map[*arrival]struct{}
}

// arrival is the progress of one body, guarded by arrivals.mu.
type arrival struct {
	w     http.ResponseWriter // of its request
	mark  int                 // bytes when it was last fast enough
	since time.Time           // the time of mark
	held  int64               // bytes of memory
	ended bool
}

// progress records how many bytes of a body have arrived, with more to come.
func (a *arrivals) progress(r *room, bytes int) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.arriving == nil {
		r.arriving = &arrival{w: r.w, mark: bytes, since: now}
	}
	x := r.arriving
	if _, watched := a.all[x]; !watched || bytes-x.mark >= slowBytes {
		x.mark, x.since = bytes, now
	}
	x.held = r.taken
	a.all[x] = struct{}{}
}

// pause stops watching a body until its next progress. It returns errSlowest if the body has been ended.
func (a *arrivals) pause(r *room) *failure {
	if r.arriving == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.all, r.arriving)
	if r.arriving.ended {
		return errSlowest
	}
	return nil
}

// end ends slow bodies, the slowest first, until they hold n bytes together; the body of needy is not one of them. It
// returns false if there is none. Their memory is given back a little later, by their goroutines.
func (a *arrivals) end(needy *room, n int64) bool {
	before := time.Now().Add(-a.slowAfter)
	a.mu.Lock()
	defer a.mu.Unlock()
	var slow []*arrival
	for x := range a.all {
		if x != needy.arriving && x.since.Before(before) {
			slow = append(slow, x)
		}
	}
	slices.SortFunc(slow, func(x, y *arrival) int { return x.since.Compare(y.since) })
	for _, x := range slow {
		x.ended = true
		delete(a.all, x)
		// A body that cannot be ended has its own deadline.
		_ = http.NewResponseController(x.w).SetReadDeadline(time.Unix(1, 0))
		if n -= x.held; n <= 0 {
			break
		}
	}
	return len(slow) > 0
}
