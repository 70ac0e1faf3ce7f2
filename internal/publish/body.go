package publish

import (
	"errors"
	"io"
	"net/http"
)

var (
	errTooLarge = &failure{code: tooLarge, status: http.StatusRequestEntityTooLarge, detail: "The body is larger than SIDECAR_PUBLISH_MAX_BODY."}
	errSlow     = bad("The body ended early or came too slowly.")
)

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
		return nil, errSlow
	}
	return b, f
}

// read reads length bytes, or everything when length is negative. The buffer grows with what has arrived: a length alone
// costs nothing.
func (r *room) read(from io.Reader, length int64) (b []byte, f *failure, err error) {
	b, f, err = r.readAll(from, length)
	if slow := r.server.arrivals.pause(r); slow != nil {
		return nil, slow, nil
	}
	return b, f, err
}

func (r *room) readAll(from io.Reader, length int64) (b []byte, f *failure, err error) {
	most := r.server.o.MaxBody + 1 // one byte more tells that there is more
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
