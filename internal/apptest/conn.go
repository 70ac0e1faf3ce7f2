package apptest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
)

// Conn is one accepted connection, as its script sees it.
type Conn struct {
	net.Conn
	Number int // 1 for the first connection of the server

	in     *bufio.Reader
	server *Server
}

// Request is one complete request.
type Request struct {
	Raw    []byte // head and body as they came
	Method string
	Target string
	Header http.Header
	Body   []byte
	Conn   int // number of the connection it came on
}

func newConn(raw net.Conn, s *Server, number int) *Conn {
	return &Conn{Conn: raw, Number: number, in: bufio.NewReader(raw), server: s}
}

// Next reads one request with its body. An error means that there is none: the peer closed, or did not speak HTTP.
func (c *Conn) Next() (*Request, error) {
	head, err := c.Head()
	if err != nil {
		return nil, err
	}
	parsed, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil, fmt.Errorf("read request: %w", err)
	}
	size := 0
	if v := parsed.Header.Get("Content-Length"); v != "" {
		if size, err = strconv.Atoi(v); err != nil {
			return nil, fmt.Errorf("read request: %w", err)
		}
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return nil, err
	}
	r := &Request{
		Raw: append(head, body...), Method: parsed.Method, Target: parsed.RequestURI, Header: parsed.Header,
		Body: body, Conn: c.Number,
	}
	r.Header.Set("Host", parsed.Host) // net/http takes it out
	c.server.record(r)
	return r, nil
}

// Head reads up to the end of the next request's headers and leaves the body unread.
func (c *Conn) Head() ([]byte, error) {
	var head []byte
	for {
		line, err := c.in.ReadSlice('\n')
		head = append(head, line...)
		if err != nil && err != bufio.ErrBufferFull {
			return nil, err
		}
		if bytes.HasSuffix(head, []byte("\r\n\r\n")) {
			return head, nil
		}
	}
}

// Send writes raw; a peer that has gone is its own business.
func (c *Conn) Send(raw string) { io.WriteString(c.Conn, raw) }

// Reset closes the connection so that the peer sees a reset instead of an end.
func (c *Conn) Reset() {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		t.SetLinger(0)
	}
	c.Close()
}

// WaitClosed blocks until the peer has closed, discarding what it still sends.
func (c *Conn) WaitClosed() { io.Copy(io.Discard, c.in) }

// Hold keeps the connection as it is, reading nothing, until the test ends.
func (c *Conn) Hold() { <-c.server.closing }

// Status is a complete answer without a body, after which the connection stays open.
func Status(code int, headers ...string) string {
	return fmt.Sprintf("HTTP/1.1 %03d Whatever\r\n%sContent-Length: 0\r\n\r\n", code, fields(headers))
}

func fields(headers []string) string {
	var b strings.Builder
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	return b.String()
}

// Answer is a script that gives every request the same answer.
func Answer(raw string) func(*Conn) {
	return func(c *Conn) {
		for {
			if _, err := c.Next(); err != nil {
				return
			}
			c.Send(raw)
		}
	}
}

// AnswerAndClose is a script that answers one request and closes.
func AnswerAndClose(raw string) func(*Conn) {
	return func(c *Conn) {
		if _, err := c.Next(); err == nil {
			c.Send(raw)
		}
	}
}
