// Package apptest is an app for tests, scripted down to the byte: it answers over real sockets what a test tells it to,
// however wrong that is. It is no HTTP server and must not be used by production code.
package apptest

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"sync"
	"testing"
)

// Server listens until the test ends.
type Server struct {
	URL string // without a path: http://…, https://… or unix://…

	listener net.Listener
	script   func(*Conn)
	serving  sync.WaitGroup
	closing  chan struct{}

	mu       sync.Mutex
	accepted int
	open     map[*Conn]struct{}
	requests []*Request
	stopped  bool
}

// Listen runs script for every connection accepted on a loopback port, each in a goroutine of its own. The connection
// is closed when script returns.
func Listen(tb testing.TB, script func(*Conn)) *Server {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, l, "http://"+l.Addr().String(), script)
}

// ListenTLS is Listen over TLS with a certificate that only the returned configuration trusts.
func ListenTLS(tb testing.TB, script func(*Conn)) (*Server, *tls.Config) {
	tb.Helper()
	server, client := newCertificate(tb)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, tls.NewListener(corkListener{l}, server), "https://"+l.Addr().String(), script), client
}

// ListenUnix is Listen on a Unix socket.
func ListenUnix(tb testing.TB, script func(*Conn)) *Server {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "app.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		tb.Fatal(err)
	}
	return start(tb, l, "unix://"+path, script)
}

// Refused returns the URL of a loopback port on which nothing listens.
func Refused(tb testing.TB) string {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer l.Close()
	return "http://" + l.Addr().String()
}

func start(tb testing.TB, l net.Listener, url string, script func(*Conn)) *Server {
	s := &Server{URL: url, listener: l, script: script, open: map[*Conn]struct{}{}, closing: make(chan struct{})}
	s.serving.Add(1)
	go s.accept()
	tb.Cleanup(s.Close)
	return s
}

func (s *Server) accept() {
	defer s.serving.Done()
	for {
		raw, err := s.listener.Accept()
		if err != nil {
			return
		}
		if c := s.admit(raw); c != nil {
			go func() {
				defer s.serving.Done()
				defer s.leave(c)
				s.script(c)
			}()
		}
	}
}

func (s *Server) admit(raw net.Conn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		raw.Close()
		return nil
	}
	s.accepted++
	c := newConn(raw, s, s.accepted)
	s.open[c] = struct{}{}
	s.serving.Add(1)
	return c
}

func (s *Server) leave(c *Conn) {
	c.Close()
	s.mu.Lock()
	delete(s.open, c)
	s.mu.Unlock()
}

// Close stops listening, closes every connection and waits for the scripts to return. A script that waits for
// something else than its connection must be let go before.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.stopped {
		close(s.closing)
	}
	s.stopped = true
	s.listener.Close()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.serving.Wait()
}

// Accepted returns the number of connections so far.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Requests returns the complete requests read so far, in the order in which they were complete.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*Request(nil), s.requests...)
}

func (s *Server) record(r *Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	s.mu.Unlock()
}
