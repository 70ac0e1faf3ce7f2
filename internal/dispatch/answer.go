package dispatch

import (
	"bytes"
	"errors"
	"io"
	"time"

	"sidecar/internal/message"
)

// answer reads one HTTP/1 answer. What is kept of it are facts for the outcome and whether the connection may serve
// another message; the body is read to get it out of the way, and kept only if it may say something.
type answer struct {
	in   reader
	dapr bool // the body of a 2xx may say what becomes of the message

	status int
	minor  byte // of HTTP/1.minor
	fields fields
	keep   time.Duration // how long the app keeps an idle connection, as far as it says

	reusable bool
	speaks   bool   // the body says what becomes of the message
	keeps    bool   // the body is kept
	whole    bool   // it was read to its end
	kept     []byte // what was read of it
}

// fields are the header fields that matter.
type fields struct {
	length      int64 // Content-Length; -1 when absent
	coded       bool  // Transfer-Encoding is present
	chunked     bool  // … and is "chunked" and nothing else
	close       bool
	isProblem   bool
	retryAfter  retryAfter
	disposition disposition
	reason      string
	keepAlive   time.Duration
}

func (a *answer) forget() {
	a.in.src, a.in.memory, a.dapr = nil, nil, false
	a.fields = fields{}
}

// read reads an answer from src. The error is nil once there is a status line with complete headers, whatever becomes
// of the body: the app has answered. Only where the body is a part of the answer, a body that breaks off is an error.
func (a *answer) read(src io.Reader) error {
	a.in.reset(src)
	a.reusable, a.kept = false, a.kept[:0]
	for budget := maxHead; ; {
		head, err := a.in.head(budget)
		if err != nil {
			return err
		}
		budget -= len(head)
		if err := a.parse(head); err != nil {
			return err
		}
		// 101 is final: there is no HTTP/1 after it.
		if a.status/100 != 1 || a.status == 101 {
			break
		}
	}
	if a.fields.disposition.conflicting {
		return errDispositions // the status must not decide: it may be a 2xx
	}
	a.speaks = a.dapr && a.status/100 == 2
	a.keeps = a.fields.isProblem || a.speaks
	clean, err := a.body()
	a.whole = err == nil
	a.reusable = a.whole && clean && a.in.pos == a.in.end
	a.keep = a.fields.keepAlive
	if a.speaks && !errors.Is(err, errLongBody) {
		return err
	}
	return nil
}

// parse reads one header block. It is as strict as net/http's reader, and stricter where the version is not HTTP/1 or
// the status is not three digits.
func (a *answer) parse(head []byte) error {
	a.fields = fields{length: -1, keepAlive: noLimit}
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
		if !a.fields.line(line) {
			return errHeaderLine
		}
	}
}

// statusLine reads "HTTP/1.x NNN reason"; the reason may say anything or be missing.
func (a *answer) statusLine(b []byte) bool {
	const version = len(protocol) + 1
	if len(b) <= version || string(b[:len(protocol)]) != protocol || !digit(b[version-1]) || b[version] != ' ' {
		return false
	}
	a.minor = b[version-1]
	b = bytes.TrimLeft(b[version:], " ")
	if len(b) < 3 || len(b) > 3 && b[3] != ' ' || !digit(b[0]) || !digit(b[1]) || !digit(b[2]) {
		return false
	}
	a.status = int(b[0]-'0')*100 + int(b[1]-'0')*10 + int(b[2]-'0')
	return true
}

// The texts never quote the answer: it may hold what the message held.
const (
	errStatusLine = malformedError("bad status line")
	errHeaderLine = malformedError("bad header line")
	errTooLong    = malformedError("header block larger than 64 KiB")
	errNotHTTP    = malformedError("not HTTP/1")

	errDispositions = malformedError("two different Amqp-Disposition headers")
	errNoMemory     = malformedError("larger than 4 KiB while SIDECAR_MEMORY is used up")
)

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

// cutFolded takes a header line with its continuation lines off b. The line ends between become spaces, in place. A line
// without a colon has no continuation: it is no header, and what follows must not make it one.
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

// report copies what was learnt into o.
func (a *answer) report(o *message.Outcome, retryAfterMax time.Duration) {
	f := &a.fields
	o.Status = a.status
	if f.retryAfter.present {
		o.RetryAfter = f.retryAfter.wait(time.Now(), retryAfterMax)
	}
	o.Disposition, o.Unknown = f.disposition.result()
	o.Detail = f.reason
	if f.isProblem {
		o.Problem = parseProblem(a.kept)
	}
	if a.speaks {
		daprAnswer(a.kept, !a.whole, o)
	}
}
