package publish

import (
	"context"
	"errors"
	"io"
	"net/http"
)

var (
	errTooLarge = &failure{code: tooLarge, status: http.StatusRequestEntityTooLarge, detail: "The body is larger than SIDECAR_PUBLISH_MAX_BODY."}
	errSlow     = bad("The body ended early or came too slowly.")
)

// room is the memory that a body holds of what all may hold together.
type room struct {
	server *Server
	wait   bool  // for room, up to the timeout
	taken  int64 // in bytes
}

// take takes n bytes more.
func (r *room) take(n int64) bool {
	f := r.server.inflight
	ok := f.take(n)
	if !ok && r.wait {
		ctx, cancel := context.WithTimeout(context.Background(), r.server.o.Timeout)
		defer cancel()
		ok = f.takeLater(ctx, n)
	}
	if ok {
		r.taken += n
	}
	return ok
}

func (r *room) free() {
	r.server.inflight.give(r.taken)
	r.taken = 0
}

// firstRead is how much memory a body gets before it has arrived, in bytes.
const firstRead = 64 << 10

// body reads the body of a request. It takes room for all of it first when its length is known, and as it arrives when it is
// not. Memory comes with the bytes either way: a length alone costs nothing.
func (r *room) body(q *http.Request) ([]byte, *failure) {
	limit, length := r.server.o.MaxBody, q.ContentLength
	switch {
	case length > limit:
		return nil, errTooLarge
	case length == 0:
		return nil, nil
	case length > 0 && !r.take(length):
		return nil, errBusy
	}
	b, f, err := r.read(q.Body, length)
	if err != nil {
		return nil, errSlow
	}
	return b, f
}

// read reads up to length bytes, for which there is room already, or everything when length is negative.
func (r *room) read(from io.Reader, length int64) (b []byte, f *failure, err error) {
	limit := r.server.o.MaxBody
	if length >= 0 {
		limit = length
	}
	for {
		if len(b) == cap(b) {
			size := min(max(2*int64(cap(b)), firstRead), limit+1) // one byte more than the limit tells that there is more
			if length >= 0 {
				size = min(size, length)
			} else if !r.take(size - int64(cap(b))) {
				return nil, errBusy, nil
			}
			grown := make([]byte, len(b), size)
			copy(grown, b)
			b = grown
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) == length:
			return b, nil, nil
		case int64(len(b)) > limit:
			return nil, errTooLarge, nil
		case errors.Is(err, io.EOF) && length < 0:
			return b, nil, nil
		case err != nil:
			return nil, nil, err
		}
	}
}
