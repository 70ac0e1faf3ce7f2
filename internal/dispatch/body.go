package dispatch

import "bytes"

// maxAnswerBody bounds what is read of an answer's body, framing included. An app that sends more pays with its
// connection.
const maxAnswerBody = 64 << 10

// body gets the body out of the way. It reports whether the connection stands exactly at the end of the answer and may
// be used again; everything doubtful says no, nothing doubtful changes the status.
func (a *answer) body() bool {
	f := &a.fields
	// A length beside a transfer coding, or HTTP/1.0, whose connections mean what each server likes: not again.
	clean := a.minor != '0' && !f.close && (!f.coded || f.length < 0)
	left := budget(maxAnswerBody)
	switch {
	case a.status == 101:
		return false
	case a.status == 204, a.status == 304:
		// These have no body. One that is announced may come all the same.
		return clean && f.length <= 0 && !f.coded
	case f.chunked && a.minor != '0':
		return a.chunks(&left) && clean
	case f.length >= 0 && !f.coded:
		return f.length <= maxAnswerBody && a.discard(f.length, &left) && clean
	}
	a.rest(&left)
	return false
}

// budget is how many more bytes of a body may be used.
type budget int64

func (l *budget) spend(n int64) bool {
	*l -= budget(n)
	return *l >= 0
}

// discard takes n bytes out of the window, keeping them only for a problem document.
func (a *answer) discard(n int64, left *budget) bool {
	for n > 0 {
		b := a.in.buffered()
		if len(b) == 0 {
			if a.in.more(len(a.in.buf)) != nil {
				return false
			}
			continue
		}
		b = b[:min(int64(len(b)), n)]
		if !left.spend(int64(len(b))) {
			return false
		}
		if a.fields.isProblem {
			a.problem = append(a.problem, b...)
		}
		a.in.pos += len(b)
		n -= int64(len(b))
	}
	return true
}

// rest reads to the end of the connection, or of the budget.
func (a *answer) rest(left *budget) {
	for {
		if !a.discard(int64(len(a.in.buffered())), left) || a.in.more(len(a.in.buf)) != nil {
			return
		}
	}
}

// chunks reads a chunked body. Trailers are read and forgotten, but end the connection's life: nothing here needs them.
func (a *answer) chunks(left *budget) bool {
	for {
		line, ok := a.chunkLine(left)
		if !ok {
			return false
		}
		size, ok := chunkSize(line)
		if !ok || size > maxAnswerBody {
			return false
		}
		if size == 0 {
			break
		}
		if !a.discard(size, left) {
			return false
		}
		if line, ok = a.chunkLine(left); !ok || len(line) > 0 {
			return false
		}
	}
	for trailers := 0; ; trailers++ {
		line, ok := a.chunkLine(left)
		if !ok {
			return false
		}
		if len(line) == 0 {
			return trailers == 0
		}
	}
}

// chunkLine takes a line that ends in CRLF, without it. Here a bare LF or CR is no line end: peers that disagree about
// that disagree about where the next chunk starts.
func (a *answer) chunkLine(left *budget) ([]byte, bool) {
	for {
		b := a.in.buffered()
		if i := bytes.IndexByte(b, '\n'); i >= 0 {
			a.in.pos += i + 1
			if !left.spend(int64(i+1)) || i == 0 || bytes.IndexByte(b[:i], '\r') != i-1 {
				return nil, false
			}
			return b[:i-1], true
		}
		if a.in.more(len(a.in.buf)) != nil {
			return nil, false
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
	case 'a' <= lower(c) && lower(c) <= 'f':
		return int64(lower(c)-'a') + 10, true
	}
	return 0, false
}
