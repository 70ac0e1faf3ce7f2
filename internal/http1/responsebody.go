package http1

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"strconv"
)

// MaxBody bounds what is read of an answer's body, unless Answer.Limit does. The framing of its chunks has the same
// bound of its own: how an app frames an answer must not change what it says. An app that sends more pays with its
// connection.
const MaxBody = 64 << 10

// Why a body was not read to its end, besides errors of the connection. None of them changes the status.
var (
	errLongBody = errors.New("the answer's body is larger than its limit")
	errCutShort = errors.New("the connection ended within the answer's body")
)

const (
	errChunk  = MalformedError("bad chunk")
	errCoding = MalformedError("a Transfer-Encoding that is not understood")
)

// budgets are how many more bytes may be read: of the body, and of the framing of its chunks.
type budgets struct{ body, framing int64 }

// body reads the body. Without an error it was read to its end, and clean reports whether nothing follows on the
// connection, which may then be used again; in doubt it is false.
func (a *Answer) body() (clean bool, err error) {
	f := &a.fields
	// A length beside a transfer coding, or HTTP/1.0, whose connections mean what each server likes: not again.
	clean = a.minor != '0' && !f.close && (!f.coded || f.length < 0)
	limit := a.limit()
	a.left = budgets{body: limit, framing: limit}
	switch {
	case a.Status == 101:
		return false, nil
	case a.Status == 204, a.Status == 304:
		// These have no body. One that is announced may come all the same.
		return clean && f.length <= 0 && !f.coded, nil
	case f.chunked && a.minor != '0':
		trailers, err := a.chunks()
		return clean && !trailers, err
	case f.length >= 0 && !f.coded:
		return clean, a.discard(f.length)
	}
	a.CloseDelimited = true
	if f.coded && a.use == Need {
		return false, errCoding
	}
	return false, a.rest()
}

func (a *Answer) limit() int64 { return cmp.Or(a.Limit, MaxBody) }

// more reads on within a body.
func (a *Answer) more() error {
	err := a.in.more(len(a.in.buf))
	switch {
	case errors.Is(err, io.EOF):
		return errCutShort
	case errors.Is(err, errTooLong):
		return errLongBody
	}
	return err
}

// discard removes n bytes from the window, and keeps as many as are needed of the body. It does not wait for the rest
// of a body that is too long once enough of it is kept.
func (a *Answer) discard(n int64) error {
	for n > 0 {
		enough := a.use == Skip || a.use == Begin && len(a.Body) == smallAnswer
		if a.left.body == 0 || n > a.left.body && enough {
			a.Size = a.limit()
			return errLongBody
		}
		b := a.in.buffered()
		if len(b) == 0 {
			if err := a.more(); err != nil {
				return err
			}
			continue
		}
		b = b[:min(int64(len(b)), n, a.left.body)]
		if err := a.keepBytes(b); err != nil {
			return err
		}
		a.in.pos += len(b)
		n -= int64(len(b))
		a.left.body -= int64(len(b))
		a.Size += int64(len(b))
	}
	return nil
}

// keepBytes keeps b if the body has a use. Without memory for a large body only its beginning is kept, and one that is
// needed is an error: what it says must not be guessed.
func (a *Answer) keepBytes(b []byte) error {
	switch {
	case a.use == Skip:
		return nil
	case len(a.Body)+len(b) <= smallAnswer || a.use != Begin && a.in.reserve() || a.use == Need && a.in.await():
		a.Body = append(a.Body, b...)
		return nil
	case a.use == Need:
		return errNoMemory
	}
	a.use, a.Body = Skip, append(a.Body, b[:smallAnswer-len(a.Body)]...)
	return nil
}

// rest reads to the end of the connection, or until nothing is left.
func (a *Answer) rest() error {
	for {
		if err := a.discard(int64(len(a.in.buffered()))); err != nil {
			return err
		}
		if err := a.more(); errors.Is(err, errCutShort) { // this body has no other end
			return nil
		} else if err != nil {
			return err
		}
	}
}

// chunks reads a chunked body. Trailers are read and forgotten, but end the connection's life: nothing here needs them.
func (a *Answer) chunks() (trailers bool, err error) {
	for {
		size, err := a.chunkSize()
		switch {
		case err != nil:
			return false, err
		case size == 0:
			for {
				line, err := a.chunkLine()
				if err != nil || len(line) == 0 {
					return trailers, err
				}
				trailers = true
			}
		}
		if err := a.discard(size); err != nil {
			return false, err
		}
		switch line, err := a.chunkLine(); {
		case err != nil:
			return false, err
		case len(line) > 0:
			return false, errChunk
		}
	}
}

// chunkLine takes a line that ends in CRLF, without it. A bare LF or CR does not end a line here: peers that disagree
// about that disagree about where the next chunk starts.
func (a *Answer) chunkLine() ([]byte, error) {
	for {
		b := a.in.buffered()
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			a.in.pos += i + 1
			a.left.framing -= int64(i + 1)
			switch {
			case a.left.framing < 0:
				return nil, errLongBody
			case i == 0, bytes.IndexByte(b[:i], '\r') != i-1:
				return nil, errChunk
			}
			return b[:i-1], nil
		}
		if err := a.more(); err != nil {
			return nil, err
		}
	}
}

// chunkSize reads the line of a chunk: its size is hexadecimal, and an extension after ';' is ignored.
func (a *Answer) chunkSize() (int64, error) {
	line, err := a.chunkLine()
	if err != nil {
		return 0, err
	}
	digits, _, _ := bytes.Cut(bytes.TrimRight(line, " \t"), []byte{';'})
	if len(digits) > 15 {
		return 0, errChunk
	}
	n, err := strconv.ParseUint(string(digits), 16, 60)
	if err != nil {
		return 0, errChunk
	}
	return int64(n), nil // #nosec G115 -- 60 bits
}
