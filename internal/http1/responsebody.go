package http1

import (
	"bytes"
	"errors"
	"io"
)

// MaxBody bounds what is read of an answer's body, and the framing of its chunks has the same bound of its own: how an
// app frames an answer must not change what it says. An app that sends more pays with its connection.
const MaxBody = 64 << 10

// Why a body was not read to its end, besides errors of the connection. None of them changes the status.
var (
	errLongBody = errors.New("the answer's body is larger than 64 KiB")
	errCutShort = errors.New("the connection ended within the answer's body")
)

const errChunk = MalformedError("bad chunk")

// body reads the body. Without an error it was read to its end, and clean reports whether nothing follows on the
// connection, which may then be used again; in doubt it is false.
func (a *Answer) body() (clean bool, err error) {
	f := &a.fields
	// A length beside a transfer coding, or HTTP/1.0, whose connections mean what each server likes: not again.
	clean = a.minor != '0' && !f.close && (!f.coded || f.length < 0)
	left := int64(MaxBody)
	switch {
	case a.Status == 101:
		return false, nil
	case a.Status == 204, a.Status == 304:
		// These have no body. One that is announced may come all the same.
		return clean && f.length <= 0 && !f.coded, nil
	case f.chunked && a.minor != '0':
		trailers, err := a.chunks(left)
		return clean && !trailers, err
	case f.length > MaxBody && !f.coded && a.use != Need: // nothing in it matters
		return false, errLongBody
	case f.length >= 0 && !f.coded:
		return clean, a.discard(f.length, &left)
	}
	return false, a.rest(&left)
}

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

// allowance is how many more bytes of framing may be used.
type allowance int64

func (l *allowance) spend(n int64) bool {
	*l -= allowance(n)
	return *l >= 0
}

// discard removes n bytes from the window, and keeps as many as are needed of the body.
func (a *Answer) discard(n int64, left *int64) error {
	for n > 0 {
		if *left == 0 {
			return errLongBody
		}
		b := a.in.buffered()
		if len(b) == 0 {
			if err := a.more(); err != nil {
				return err
			}
			continue
		}
		b = b[:min(int64(len(b)), n, *left)]
		if err := a.keepBytes(b); err != nil {
			return err
		}
		a.in.pos += len(b)
		n -= int64(len(b))
		*left -= int64(len(b))
	}
	return nil
}

// keepBytes keeps b if the body has a use. Without memory for a large body one that is only kept is read past,
// and one that is needed is an error: what it says must not be guessed.
func (a *Answer) keepBytes(b []byte) error {
	switch {
	case a.use == Skip:
		return nil
	case len(a.Body)+len(b) <= smallAnswer || a.in.reserve() || a.use == Need && a.in.await():
		a.Body = append(a.Body, b...)
		return nil
	case a.use == Need:
		return errNoMemory
	}
	a.use, a.Body = Skip, a.Body[:0]
	return nil
}

// rest reads to the end of the connection, or until nothing is left.
func (a *Answer) rest(left *int64) error {
	for {
		if err := a.discard(int64(len(a.in.buffered())), left); err != nil {
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
func (a *Answer) chunks(left int64) (trailers bool, err error) {
	framing := allowance(MaxBody)
	for {
		line, err := a.chunkLine(&framing)
		if err != nil {
			return false, err
		}
		size, ok := chunkSize(line)
		switch {
		case !ok:
			return false, errChunk
		case size > MaxBody && a.use != Need:
			return false, errLongBody
		case size == 0:
			return a.trailers(&framing)
		}
		if err := a.discard(size, &left); err != nil {
			return false, err
		}
		if line, err = a.chunkLine(&framing); err != nil {
			return false, err
		}
		if len(line) > 0 {
			return false, errChunk
		}
	}
}

// trailers reads to the blank line and reports whether there was anything before it.
func (a *Answer) trailers(left *allowance) (found bool, err error) {
	for {
		line, err := a.chunkLine(left)
		if err != nil || len(line) == 0 {
			return found, err
		}
		found = true
	}
}

// chunkLine takes a line that ends in CRLF, without it. A bare LF or CR does not end a line here: peers that disagree
// about that disagree about where the next chunk starts.
func (a *Answer) chunkLine(left *allowance) ([]byte, error) {
	for {
		b := a.in.buffered()
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			a.in.pos += i + 1
			switch {
			case !left.spend(int64(i + 1)):
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

// chunkSize reads the hexadecimal size; an extension after ';' is ignored.
func chunkSize(line []byte) (int64, bool) {
	line, _, _ = bytes.Cut(bytes.TrimRight(line, " \t"), []byte{';'})
	if len(line) == 0 || len(line) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range line {
		d, ok := hexDigit(c)
		if !ok {
			return 0, false
		}
		n = n<<4 | d
	}
	return n, true
}

func hexDigit(c byte) (int64, bool) {
	switch {
	case digit(c):
		return int64(c - '0'), true
	case 'a' <= Lower(c) && Lower(c) <= 'f':
		return int64(Lower(c)-'a') + 10, true
	}
	return 0, false
}
