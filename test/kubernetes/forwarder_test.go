//go:build kubernetes

package kubernetes

import (
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
)

// forwarder is an address of the broker that a test opens and closes. Nobody listens there before it is opened.
type forwarder struct {
	s   *scene
	url string // as pods reach it

	mu       sync.Mutex
	addr     string
	listener net.Listener
	conns    []net.Conn
	n        int
}

func (s *scene) newForwarder() *forwarder {
	s.t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		s.t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	u, err := url.Parse(env.amqpPods)
	if err != nil {
		s.t.Fatal(err)
	}
	u.Host = net.JoinHostPort(env.host, port)
	f := &forwarder{s: s, url: u.String(), addr: ":" + port}
	s.t.Cleanup(f.close)
	return f
}

func (f *forwarder) open() {
	f.s.t.Helper()
	u, err := url.Parse(env.amqp)
	if err != nil {
		f.s.t.Fatal(err)
	}
	to := u.Host
	if !strings.Contains(to, ":") {
		to += ":5672"
	}
	l, err := net.Listen("tcp", f.addr)
	if err != nil {
		f.s.t.Fatal(err)
	}
	f.listener = l
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				continue
			}
			f.mu.Lock()
			f.n++
			f.conns = append(f.conns, in, out)
			f.mu.Unlock()
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
}

func (f *forwarder) close() {
	if f.listener == nil {
		return
	}
	_ = f.listener.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
}

// accepted returns how many connections came.
func (f *forwarder) accepted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.n
}
