// Package apptest is an app for tests, scripted down to the byte: it answers over real sockets with the bytes that a
// test sets, valid or not. It is not an HTTP server and must not be used by production code.
package apptest

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sidecar/internal/testkit/ca"
	"sidecar/internal/testkit/must"
)

// Server runs a script for each of its connections and keeps the requests it has read.
type Server struct {
	URL string // without a path: http://…, https://… or unix://…

	script  func(*Conn)
	serving sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener
	closing  chan struct{}
	accepted int
	open     map[*Conn]struct{}
	requests []*Request
	byID     map[string][]*Request
	stopped  bool
}

// New returns a server that runs script for every connection, each in a goroutine of its own. The connection is closed
// when script returns. The caller has to call Serve and Close.
func New(script func(*Conn)) *Server {
	return &Server{script: script, open: map[*Conn]struct{}{}, byID: map[string][]*Request{}}
}

// Listen serves on a loopback port until the test ends.
func Listen(tb testing.TB, script func(*Conn)) *Server {
	tb.Helper()
	l := listen(tb, "tcp", "127.0.0.1:0")
	return start(tb, l, "http://"+l.Addr().String(), script)
}

// ListenTLS is Listen over TLS with a certificate that only the returned configuration trusts.
func ListenTLS(tb testing.TB, script func(*Conn)) (*Server, *tls.Config) {
	tb.Helper()
	server, client := Certificate(tb)
	l := listen(tb, "tcp", "127.0.0.1:0")
	return start(tb, tls.NewListener(corkListener{l}, server), "https://"+l.Addr().String(), script), client
}

// Certificate makes a certificate for 127.0.0.1 and the client configuration that trusts it alone.
func Certificate(tb testing.TB) (server, client *tls.Config) {
	tb.Helper()
	authority := ca.New(tb)
	server = authority.ServerConfig(tb, "127.0.0.1")
	server.NextProtos = []string{"http/1.1"}
	return server, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authority.Pool()}
}

// ListenUnix is Listen on a Unix socket.
func ListenUnix(tb testing.TB, script func(*Conn)) *Server {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "app.sock")
	return start(tb, listen(tb, "unix", path), "unix://"+path, script)
}

func listen(tb testing.TB, network, addr string) net.Listener {
	tb.Helper()
	return must.Get(net.Listen(network, addr))(tb)
}

// ListenWithin opens a TCP address that was closed a moment ago. A process that was being started at that time holds a
// copy of the socket until its exec, so the address may stay in use for a while.
func ListenWithin(limit time.Duration, addr string) (l net.Listener, err error) {
	for end := time.Now().Add(limit); ; time.Sleep(20 * time.Millisecond) {
		if l, err = net.Listen("tcp", addr); err == nil || time.Now().After(end) {
			return l, err
		}
	}
}

// Refused returns the URL of a loopback port on which nothing listens.
func Refused(tb testing.TB) string {
	tb.Helper()
	l := listen(tb, "tcp", "127.0.0.1:0")
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

func start(tb testing.TB, l net.Listener, url string, script func(*Conn)) *Server {
	s := New(script)
	s.URL = url
	s.Serve(l)
	tb.Cleanup(s.Close)
	return s
}

// Serve accepts the connections of l in the background. After Shut it may be called again.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listener, s.closing, s.stopped = l, make(chan struct{}), false
	s.serving.Add(1)
	go s.accept(l)
}

func (s *Server) accept(l net.Listener) {
	defer s.serving.Done()
	for {
		raw, err := l.Accept()
		if err != nil {
			return
		}
		if c := s.admit(l, raw); c != nil {
			go func() {
				defer s.serving.Done()
				defer s.leave(c)
				s.script(c)
			}()
		}
	}
}

func (s *Server) admit(l net.Listener, raw net.Conn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped || s.listener != l {
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

// Close is Shut and waits for the scripts to return. A script that waits for something else than its connection must be
// let go before.
func (s *Server) Close() {
	s.Shut()
	s.serving.Wait()
}

// Shut stops listening and closes every connection, as a crash would.
func (s *Server) Shut() { s.stop(func(*Conn) bool { return true }) }

// Shutdown stops listening and waits until every request that has begun is answered, for at most limit.
func (s *Server) Shutdown(limit time.Duration) {
	defer time.AfterFunc(limit, s.Shut).Stop()
	s.stop(func(c *Conn) bool { return c.idle })
	s.serving.Wait()
}

func (s *Server) stop(closes func(*Conn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		close(s.closing)
		_ = s.listener.Close()
	}
	s.stopped = true
	for c := range s.open {
		if closes(c) {
			c.Close()
		}
	}
}

// rest marks c as idle or busy and returns false if the server has stopped, so that there is no next request.
func (s *Server) rest(c *Conn, idle bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.idle = idle
	return !s.stopped
}

// Accepted returns the number of connections so far.
func (s *Server) Accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted
}

// Connections returns the number of open connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Requests returns the complete requests read so far, in the order in which they were complete.
func (s *Server) Requests() []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Seen returns the requests with one message id, oldest first.
func (s *Server) Seen(id string) []*Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.byID[id])
}

// record needs s.mu.
func (s *Server) record(r *Request) {
	s.requests, s.byID[r.ID] = append(s.requests, r), append(s.byID[r.ID], r)
	r.Nth = len(s.byID[r.ID])
}
