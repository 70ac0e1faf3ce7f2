package httpguard

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strconv"
	"strings"
	"time"

	"sidecar/internal/http1"
)

const (
	// directBuffer is the buffer of a connection. A larger request gets a larger buffer until it is answered.
	directBuffer = http1.MaxInboundHead
	// maxDirect bounds head and body of a request that is answered without net/http.
	maxDirect = 64 << 10
	// directPatience is how long the rest of a request may take; some clients send head and body in two packets.
	directPatience = 100 * time.Millisecond
	// closePatience and maxDiscard bound what is read of a client whose connection is being closed.
	closePatience = 500 * time.Millisecond
	maxDiscard    = 64 << 20
)

// direct serves one connection while its requests are plain, see http1.Inbound, and then gives it to net/http. The
// handler is the same: only the reading of requests and the writing of answers differ.
type direct struct {
	*conn

	server *Server
	in     *http1.Inbound
	out    answer
	buf    []byte
	n      int // bytes of buf that have arrived

	readFrom, writeFrom time.Time // when the deadlines were set; zero when a shorter one was set since
}

// serveDirect returns when the connection has been closed or given to net/http.
func (s *Server) serveDirect(c *conn) {
	ctx := context.WithValue(context.Background(), connKey{}, c)
	d := &direct{
		conn: c, server: s, buf: make([]byte, directBuffer), out: answer{to: c.Conn, header: http.Header{}},
		in: http1.NewInbound(new(http.Request).WithContext(ctx), c.RemoteAddr().String()),
	}
	for {
		switch plain, err := d.read(); {
		case err != nil:
			d.linger()
			return
		case !plain:
			c.l.memory.Give(int64(len(d.buf) - directBuffer))
			c.l.handOver(c, d.buf[:d.n])
			return
		}
		if !d.answer() {
			d.linger()
			return
		}
	}
}

// read returns true when a whole request has arrived, and false for a request that net/http has to read.
func (d *direct) read() (plain bool, err error) {
	for late := false; ; {
		if d.n > 0 && d.in.Size == 0 && !d.in.Parse(d.buf[:d.n], d.server.Direct) {
			return false, nil
		}
		size := d.in.Size
		switch {
		case size > 0 && d.n >= size:
			d.in.Take(d.buf)
			return true, nil
		case late, size > maxDirect, d.n == len(d.buf) && !d.grow(size):
			return false, nil
		}
		d.limitRead()
		runtime.Gosched() // others write their answers first: the next request has often arrived then
		n, err := d.Conn.Read(d.buf[d.n:])
		d.n += n
		if err != nil && d.n == 0 {
			return false, err
		}
		late = err != nil // net/http has its own deadlines, and answers a request that ends early
	}
}

// limitRead sets the deadline of the next read. A connection without a request may be idle for an eighth longer than
// IdleTimeout: setting a deadline costs as much as a tenth of a request.
func (d *direct) limitRead() {
	now, limit := time.Now(), d.server.IdleTimeout
	switch {
	case d.n == 0 && now.Sub(d.readFrom) < limit/8:
		return
	case d.n == 0:
		d.readFrom, limit = now, limit+limit/8
	case d.partial:
		return
	default:
		d.mark(true, false)
		d.readFrom, limit = time.Time{}, directPatience
	}
	_ = d.SetReadDeadline(now.Add(limit))
}

// grow doubles the buffer, up to the size of the request. It returns false if there is no memory for that.
func (d *direct) grow(size int) bool {
	more := min(2*len(d.buf), size) - len(d.buf)
	if !d.l.memory.Take(int64(more)) {
		return false
	}
	d.buf = append(d.buf, make([]byte, more)...)
	return true
}

// drop removes the first n bytes, and what a large request needed.
func (d *direct) drop(n int) {
	rest := d.buf[n:d.n]
	if large := len(d.buf) - directBuffer; large > 0 && len(rest) <= directBuffer {
		d.buf = make([]byte, directBuffer)
		d.l.memory.Give(int64(large))
	}
	d.n = copy(d.buf, rest)
	d.in.Size = 0
}

// answer lets the handler answer the request. It returns false when the connection must be closed.
func (d *direct) answer() bool {
	d.mark(false, true)
	clear(d.out.header)
	d.out.status, d.out.body = 0, d.out.body[:0]
	d.server.Handler.ServeHTTP(&d.out, d.in.Request)
	d.drop(d.in.Size)
	if d.mark(false, true) {
		d.out.header["Connection"] = []string{"close"}
	}
	if now, limit := time.Now(), d.server.WriteTimeout; now.Sub(d.writeFrom) > limit/8 {
		d.writeFrom = now
		_ = d.SetWriteDeadline(now.Add(limit + limit/8))
	}
	err := d.out.write()
	return !d.mark(false, false) && err == nil && d.out.header["Connection"] == nil
}

// linger closes the connection. What its client still sends is discarded for a moment: closing a connection with unread
// bytes resets it, and the client would lose the answer.
func (d *direct) linger() {
	if d.CloseWrite() == nil && d.SetReadDeadline(time.Now().Add(closePatience)) == nil {
		_, _ = io.CopyN(io.Discard, d.Conn, maxDiscard)
	}
	d.l.memory.Give(int64(len(d.buf) - directBuffer))
	_ = d.Close()
}

// answer is the http.ResponseWriter of a direct request: small answers, written at once.
type answer struct {
	to     net.Conn
	header http.Header
	status int
	body   []byte
	bytes  []byte // of the whole answer
}

func (a *answer) Header() http.Header { return a.header }

func (a *answer) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	a.body = append(a.body, p...)
	return len(p), nil
}

func (a *answer) write() error {
	a.WriteHeader(http.StatusOK)
	b := append(a.bytes[:0], "HTTP/1.1 "...)
	b = append(append(strconv.AppendInt(b, int64(a.status), 10), ' '), http.StatusText(a.status)...)
	b = time.Now().UTC().AppendFormat(append(b, "\r\nDate: "...), http.TimeFormat)
	if a.status == http.StatusNoContent {
		a.body = a.body[:0] // it has no end that a client could find
	} else if a.header["Content-Length"] == nil {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(len(a.body)), 10)
	}
	for name, values := range a.header {
		for _, v := range values {
			b = append(append(append(append(b, "\r\n"...), name...), ": "...), lineBreaks.Replace(v)...)
		}
	}
	a.bytes = append(append(b, "\r\n\r\n"...), a.body...)
	_, err := a.to.Write(a.bytes)
	return err
}

var lineBreaks = strings.NewReplacer("\r", " ", "\n", " ")
