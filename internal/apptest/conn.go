package apptest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Conn is one accepted connection, as its script sees it.
type Conn struct {
	net.Conn
	Number int // 1 for the first connection of the server

	in      *bufio.Reader
	server  *Server
	closing <-chan struct{} // of the server
	idle    bool            // no byte of the next request has come; needs the server's mu
	gone    chan struct{}   // of Gone, until the next Head
}

// Request is one complete request.
type Request struct {
	At     time.Time // when its head was complete
	ID     string    // of the message
	Nth    int       // requests of this ID so far, from 1
	Raw    []byte    // head and body as they came
	Method string
	Target string
	Header http.Header
	Body   []byte
	Remote string
	Conn   int // number of the connection it came on
}

// Number reads a count out of a header, -1 if it is not a number.
func (r *Request) Number(header string) int {
	n, err := strconv.Atoi(r.Header.Get(header))
	if err != nil {
		return -1
	}
	return n
}

// Head returns the request line and the header lines as they came, without the last line end.
func (r *Request) Head() string {
	head, _, _ := bytes.Cut(r.Raw, []byte("\r\n\r\n"))
	return string(head)
}

// Lines returns the header lines as they came, without their line ends.
func (r *Request) Lines() []string { return strings.Split(r.Head(), "\r\n")[1:] }

// Values returns the unchanged values of all header lines with that name, in any case.
func (r *Request) Values(name string) []string {
	var list []string
	for _, line := range r.Lines() {
		if k, v, _ := strings.Cut(line, ":"); strings.EqualFold(k, name) {
			list = append(list, strings.TrimPrefix(v, " "))
		}
	}
	return list
}

func newConn(raw net.Conn, s *Server, number int) *Conn {
	return &Conn{Conn: raw, Number: number, in: bufio.NewReader(raw), server: s, closing: s.closing}
}

// Next reads one request with its body. An error means that there is none: the peer closed, or did not speak HTTP.
func (c *Conn) Next() (*Request, error) {
	r, err := c.Begin()
	if err == nil {
		err = c.Finish(r)
	}
	if err != nil {
		return nil, err
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.record(r)
	return r, nil
}

// ErrMalformed is the error of a request that no proper client sends.
var ErrMalformed = errors.New("malformed request")

// Begin reads the head of the next request and leaves the body to Finish. It is strict: a bare CR or LF, a NUL, a line
// without a name, or a POST without exactly one Content-Length is ErrMalformed.
func (c *Conn) Begin() (*Request, error) {
	head, err := c.Head()
	if err != nil {
		return nil, err
	}
	parsed, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err == nil && parsed.Proto != "HTTP/1.1" {
		err = errors.New(parsed.Proto)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w:\n%q", ErrMalformed, err, head)
	}
	r := &Request{
		At: time.Now(), ID: parsed.Header.Get("Amqp-Message-Id"), Raw: head, Method: parsed.Method, Target: parsed.RequestURI,
		Header: parsed.Header, Conn: c.Number, Remote: c.RemoteAddr().String(),
	}
	for _, line := range r.Lines() {
		if strings.ContainsAny(line, "\r\n\x00") || strings.Index(line, ":") < 1 {
			return nil, fmt.Errorf("%w: header line %q", ErrMalformed, line)
		}
	}
	if n := len(r.Values("Content-Length")); n > 1 || n == 0 && r.Method == http.MethodPost {
		return nil, fmt.Errorf("%w: Content-Length is not there exactly once:\n%s", ErrMalformed, head)
	}
	r.Header.Set("Host", parsed.Host) // net/http takes it out
	r.Body = make([]byte, max(parsed.ContentLength, 0))
	return r, nil
}

// Finish reads the body of the request that Begin has returned.
func (c *Conn) Finish(r *Request) error {
	_, err := io.ReadFull(c.in, r.Body)
	r.Raw = append(r.Raw, r.Body...)
	return err
}

// Head reads up to the end of the next request's headers and leaves the body unread.
func (c *Conn) Head() ([]byte, error) {
	if !c.server.rest(c, true) {
		return nil, net.ErrClosed
	}
	if c.gone != nil {
		<-c.gone
		c.gone = nil
	}
	_, err := c.in.Peek(1)
	c.server.rest(c, false)
	if err != nil {
		return nil, err
	}
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

// Gone returns a channel that is closed when the peer has closed or sent more. Until the next Head nothing else may
// read.
func (c *Conn) Gone() <-chan struct{} {
	gone := make(chan struct{})
	c.gone = gone
	go func() {
		defer close(gone)
		_, _ = c.in.Peek(1)
	}()
	return gone
}

// Send writes raw and reports whether the peer could still be written to.
func (c *Conn) Send(raw string) bool {
	_, err := io.WriteString(c.Conn, raw)
	return err == nil
}

// Reset closes the connection so that the peer sees a reset instead of an end.
func (c *Conn) Reset() error {
	if t, ok := c.Conn.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	return c.Close()
}

// WaitClosed blocks until the peer has closed, discarding what it still sends.
func (c *Conn) WaitClosed() { _, _ = io.Copy(io.Discard, c.in) }

// Hold keeps the connection as it is, reading nothing, until the test ends.
func (c *Conn) Hold() { <-c.closing }

// Status is a complete answer without a body, after which the connection stays open.
func Status(code int, headers ...string) string { return Full(code, "", headers...) }

// Full is a complete answer with a body, after which the connection stays open.
func Full(code int, body string, headers ...string) string {
	lines := strings.Join(append(headers, "Content-Length: "+strconv.Itoa(len(body))), "\r\n")
	return fmt.Sprintf("HTTP/1.1 %03d Whatever\r\n%s\r\n\r\n%s", code, lines, body)
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
