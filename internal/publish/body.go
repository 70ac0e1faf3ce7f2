package publish

import (
	"errors"
	"io"
	"net/http"
)

var errTooLarge = fail(tooLarge, "The body is larger than SIDECAR_PUBLISH_MAX_BODY.")

// body reads the body of a request.
func (r *room) body(q *http.Request) ([]byte, *failure) {
	switch {
	case q.ContentLength > r.server.o.MaxBody:
		return nil, errTooLarge
	case q.ContentLength == 0:
		return nil, nil
	}
	b, f, err := r.read(q.Body, q.ContentLength)
	if err != nil {
		return nil, bad("The body ended early or came too slowly.")
	}
	return b, f
}

// read reads length bytes, or everything when length is negative. The buffer grows with the bytes that arrive: a length
// alone costs nothing.
func (r *room) read(from io.Reader, length int64) (b []byte, f *failure, err error) {
	defer func() {
		if slow := r.server.arrivals.pause(r); slow != nil {
			b, f, err = nil, slow, nil
		}
	}()
	most := r.server.o.MaxBody + 1 // one byte more shows that there is more
	if length >= 0 {
		most = length
	}
	for {
		if len(b) == cap(b) {
			if b, f = r.grow(b, min(firstBuffer, most), most); f != nil {
				return nil, f, nil
			}
		}
		n, err := from.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case int64(len(b)) == length:
			return b, nil, nil
		case int64(len(b)) > r.server.o.MaxBody:
			return nil, errTooLarge, nil
		case errors.Is(err, io.EOF) && length < 0:
			return b, nil, nil
		case err != nil:
			return nil, nil, err
		}
		r.server.arrivals.progress(r, len(b))
	}
}
