package httpguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"sidecar/internal/budget"
)

const (
	// freeHeader is how many bytes of a header are not counted: probes are answered even while others use up the budget.
	freeHeader = 8 << 10
	// lineCost is the memory of a header line in package net/http beside its bytes, which it has twice: an entry of a map.
	lineCost = 160
)

var errNoMemory = errors.New("no memory for the header of a request")

// Server is the HTTP server of one address, which Server.Addr has as host:port. Listen and Serve are called once each,
// in this order.
type Server struct {
	*http.Server

	Purpose, Variable string          // for errors: what it listens for, and the variable that has the address
	Public            bool            // it needs no token at an address that other machines can reach
	Token             bool            // every request needs one
	Conns             int             // the most connections at once
	Memory            *budget.Account // headers count in it; nil bounds nothing
	Direct            string          // requests whose target begins with this are read without net/http; "": none

	Listener net.Listener // of Listen
	Hosts    Hosts        // of Listen

	bounds *listener // of Listen
}

// Listen binds the address and returns it as host:port.
func (s *Server) Listen() (string, error) {
	ln, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", s.Addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return "", fmt.Errorf("listen for %s: %s=%s: %w: stop the process that listens there, or set another address",
			s.Purpose, s.Variable, s.Addr, syscall.EADDRINUSE)
	case err != nil:
		return "", fmt.Errorf("listen for %s: %s=%s: %w", s.Purpose, s.Variable, s.Addr, err)
	}
	s.Listener, s.Hosts = ln, NewHosts(s.Addr, ln.Addr(), s.Token)
	s.bound()
	if !s.Public && !s.Token && !s.Hosts.Loopback() {
		s.Close()
		return "", fmt.Errorf("listen for %s: %s is not a loopback address and no token is set", s.Purpose, ln.Addr())
	}
	return ln.Addr().String(), nil
}

// Serve answers within bounds until the server is closed or shut down, then returns nil.
func (s *Server) Serve() error {
	l := s.bound()
	s.DisableGeneralOptionsHandler = true // it would answer "OPTIONS *" without asking the handler
	next := s.Handler
	s.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, connKey{}, c) }
	s.ConnState = func(c net.Conn, state http.ConnState) {
		if c, ok := c.(*conn); ok && state == http.StateIdle {
			c.idle()
		}
	}
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := connOf(r); c != nil {
			twoLengths := c.begin(r)
			defer c.end()
			if twoLengths {
				w.Header().Set("Connection", "close")
				Refuse(w, http.StatusBadRequest, "invalid", "A request has a Content-Length or a Transfer-Encoding, not both.")
				return
			}
		}
		next.ServeHTTP(w, r)
	})
	var from net.Listener = l
	if l.directly {
		go l.serveDirectly(s.serveDirect)
		from = l.handedOver
	}
	if err := s.Server.Serve(from); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve %s: %w", s.Purpose, err)
	}
	return nil
}

// bound returns the listener within bounds.
func (s *Server) bound() *listener {
	if s.bounds == nil {
		s.bounds = newListener(s.Listener, s)
	}
	return s.bounds
}

// Shutdown accepts no more connections, closes those without a request, and waits until ctx ends for the others.
func (s *Server) Shutdown(ctx context.Context) error {
	if s.Direct != "" && s.Listener != nil {
		s.SetKeepAlivesEnabled(false)
		return errors.Join(s.bound().stop(ctx), s.Server.Shutdown(ctx))
	}
	return s.Server.Shutdown(ctx)
}

// Close ends everything now. A server that has not served does not know its listener.
func (s *Server) Close() {
	_ = s.Server.Close()
	if s.Listener != nil {
		_ = s.Listener.Close()
		s.bound().closeDirect(func(*conn) bool { return true })
	}
}

// Received records that the body of a request has been read to its end: its connection is not closed any more to make
// room for others.
func Received(r *http.Request) {
	if c := connOf(r); c != nil {
		c.l.mu.Lock()
		defer c.l.mu.Unlock()
		c.complete = true
	}
}

type connKey struct{}

func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// conn is one connection. Its fields are guarded by l.mu.
type conn struct {
	net.Conn

	l        *listener
	since    time.Time // when the current request began to be waited for
	complete bool      // the request is complete, with its body
	cost     int64     // of the header
	held     int64     // of it, taken from the budget
	lines    lineScanner
	direct   bool   // served by serveDirect
	partial  bool   // a part of a direct request has arrived
	busy     bool   // a direct request is being answered
	prefix   []byte // what serveDirect has read for net/http; not guarded
}

// Read counts the bytes of headers. Those of bodies are counted by who keeps them.
func (c *conn) Read(p []byte) (n int, err error) {
	if len(c.prefix) > 0 {
		n = copy(p, c.prefix)
		if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
			c.prefix = nil
		}
	} else {
		n, err = c.Conn.Read(p)
	}
	if n > 0 && !c.header(p[:n]) {
		_ = c.Close()
		return 0, errNoMemory
	}
	return n, err
}

func (c *conn) header(p []byte) bool {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	bytes, lines := c.lines.scan(p)
	c.cost += 2*int64(bytes) + lineCost*int64(lines)
	for more := c.cost - freeHeader - c.held; more > 0; {
		if c.l.memory.Take(more) {
			c.held += more
			return true
		}
		if !c.l.evict(c, 1) {
			return false
		}
	}
	return true
}

// begin notes that a handler runs. It reports whether there is a Content-Length that package net/http has removed.
func (c *conn) begin(r *http.Request) (twoLengths bool) {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.lines.ended = true // also of a header that came with the request before, and was not scanned
	c.complete = r.ContentLength == 0
	return len(r.TransferEncoding) > 0 && c.lines.found
}

// end notes that a handler has ended. Package net/http still reads what the handler has left of the body.
func (c *conn) end() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.l.memory.Give(c.held)
	c.complete, c.cost, c.held, c.since = false, 0, 0, time.Now()
}

// idle notes that the next bytes are those of another request.
func (c *conn) idle() {
	c.l.mu.Lock()
	defer c.l.mu.Unlock()
	c.lines = lineScanner{}
}

// Close closes the connection and makes room for another one.
func (c *conn) Close() error {
	c.l.mu.Lock()
	c.forget()
	c.l.mu.Unlock()
	return c.Conn.Close()
}

// CloseWrite ends what is sent. Package net/http uses it before it closes a connection on which more may arrive:
// without it the client may see a reset and not the answer.
func (c *conn) CloseWrite() error {
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		return tcp.CloseWrite()
	}
	return nil
}

// forget releases the slot and the memory, once. l.mu is locked.
func (c *conn) forget() {
	delete(c.l.conns, c)
	c.l.memory.Give(c.held)
	c.held, c.cost = 0, 0
}

// lineScanner finds the end of a header, and whether it has a Content-Length, however its bytes arrive.
type lineScanner struct {
	line  [len(contentLength) + 1]byte // the first bytes of the current line
	size  int                          // how many there are; 0 for a blank line
	begun bool                         // there was a line
	ended bool                         // by a blank line: what follows is the body, until the connection is idle
	found bool
}

const contentLength = "Content-Length"

// scan returns how many bytes and lines of p belong to the header.
func (s *lineScanner) scan(p []byte) (n, lines int) {
	for i, b := range p {
		switch {
		case s.ended:
			return i, lines
		case b == '\n':
			lines++
			s.ended = s.begun && s.size == 0
			s.begun = s.begun || s.size > 0
			s.found = s.found || strings.EqualFold(string(s.line[:len(contentLength)]), contentLength) &&
				s.size == len(s.line) && strings.IndexByte(": \t", s.line[len(contentLength)]) >= 0
			s.size = 0
		case b != '\r' && s.size < len(s.line):
			s.line[s.size] = b
			s.size++
		}
	}
	return len(p), lines
}
