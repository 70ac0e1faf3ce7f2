package http1

import (
	"bytes"
	"errors"
	"io"
	"time"
)

// Header receives an answer's header fields while they are read.
type Header interface {
	// Reset is called before the fields of each header block: interim answers have one of their own.
	Reset()
	// Field is called for each field. The name is as the app wrote it; both are valid until the return.
	Field(name, value []byte)
	// Body is called once the final header block is complete, and says what the body is for. An error becomes the
	// error of the exchange.
	Body(status int) (Use, error)
}

// Use is what the body of an answer is for.
type Use uint8

// The uses of a body.
const (
	Skip  Use = iota // it is read past, so that the connection may serve again
	Begin            // its first 4 KiB are kept
	Keep             // it is kept, or only its beginning if the memory for a large one is used up
	Need             // it is kept, and an answer whose body breaks off is an error
)

// Answer reads one HTTP/1 answer.
type Answer struct {
	Status   int
	Limit    int64  // bytes of the body that are read, and of the framing of its chunks; 0 = MaxBody
	Body     []byte // the kept part of the body, at most Limit bytes; valid until the next Read
	Size     int64  // of the body, in bytes: its Content-Length, else the number of bytes read, at most Limit
	Whole    bool   // the body was read to its end
	Reusable bool   // nothing follows the answer on the connection, which may serve another request

	CloseDelimited bool // the body ends where the connection does: one that was cut short looks whole

	in     reader
	minor  byte // of HTTP/1.minor
	fields fields
	use    Use
	left   budgets
}

// fields are the header fields that say where the answer ends and how long its connection lives.
type fields struct {
	length    int64 // Content-Length; -1 when absent
	coded     bool  // Transfer-Encoding is present
	chunked   bool  // … and is "chunked" and nothing else
	close     bool
	keepAlive time.Duration // how long the app keeps an idle connection, if it says so
}

// Read reads an answer from src. The error is nil once there is a status line with complete headers, even if the body
// breaks off: the app has answered. Only when the body is needed its end is an error; of a body longer than Limit the
// beginning is kept, and Whole is false.
func (a *Answer) Read(src io.Reader, h Header) error {
	a.in.reset(src)
	a.Reusable, a.Whole, a.CloseDelimited, a.Size, a.Body = false, false, false, 0, a.Body[:0]
	for budget := maxHead; ; {
		head, err := a.in.head(budget)
		if err != nil {
			return err
		}
		budget -= len(head)
		if err := a.parse(head, h); err != nil {
			return err
		}
		// 101 is final: no HTTP/1 follows it.
		if a.Status/100 != 1 || a.Status == 101 {
			break
		}
	}
	var err error
	if a.use, err = h.Body(a.Status); err != nil {
		return err
	}
	clean, err := a.body()
	a.Whole = err == nil
	a.Size = max(a.Size, a.fields.length)
	a.Reusable = a.Whole && clean && a.in.pos == a.in.end
	if a.use == Need && !errors.Is(err, errLongBody) {
		return err
	}
	return nil
}

// parse reads one header block. It is as strict as net/http's reader, and stricter where the version is not HTTP/1 or
// the status is not three digits.
func (a *Answer) parse(head []byte, h Header) error {
	a.fields = fields{length: -1, keepAlive: noLimit}
	h.Reset()
	line, rest := cutLine(head)
	if !a.statusLine(line) {
		return errStatusLine
	}
	if len(rest) > 0 && blank(rest[0]) {
		return errHeaderLine
	}
	for {
		line, rest = cutFolded(rest)
		if len(line) == 0 {
			return nil
		}
		name, value, ok := cutField(line)
		if !ok || !a.fields.set(name, value) {
			return errHeaderLine
		}
		h.Field(name, value)
	}
}

// statusLine reads "HTTP/1.x NNN reason"; the reason may say anything or be missing.
func (a *Answer) statusLine(b []byte) bool {
	const version = len(protocol) + 1
	if len(b) <= version || string(b[:len(protocol)]) != protocol || !digit(b[version-1]) || b[version] != ' ' {
		return false
	}
	a.minor = b[version-1]
	b = bytes.TrimLeft(b[version:], " ")
	if len(b) < 3 || len(b) > 3 && b[3] != ' ' || !digit(b[0]) || !digit(b[1]) || !digit(b[2]) {
		return false
	}
	a.Status = int(b[0]-'0')*100 + int(b[1]-'0')*10 + int(b[2]-'0')
	return true
}

func digit(c byte) bool { return '0' <= c && c <= '9' }
func blank(c byte) bool { return c == ' ' || c == '\t' }

// cutLine takes the first line off b, without its CRLF or LF.
func cutLine(b []byte) (line, rest []byte) {
	i := bytes.IndexByte(b, '\n')
	line, rest = b[:i], b[i+1:]
	if i > 0 && line[i-1] == '\r' {
		line = line[:i-1]
	}
	return line, rest
}

// cutFolded takes a header line with its continuation lines off b. The line ends between become spaces, in place. A
// line without a colon has no continuation: it is not a header, and the next line must not make it one.
func cutFolded(b []byte) (line, rest []byte) {
	line, rest = cutLine(b)
	for len(line) > 0 && len(rest) > 0 && blank(rest[0]) && bytes.IndexByte(line, ':') >= 0 {
		next, after := cutLine(rest)
		start := len(b) - len(rest)
		for i := len(line); i < start; i++ {
			b[i] = ' '
		}
		line, rest = b[:start+len(next)], after
	}
	return line, rest
}
