// Package wire is a TCP proxy that breaks: it cuts, swallows, delays, narrows and slices what passes through it.
package wire

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Shape is what happens to the bytes of a Proxy. The zero Shape lets them through.
type Shape struct {
	Hole    bool          // nothing arrives, and nobody is told: a half-open link
	Latency time.Duration // of each piece, plus a random part of Jitter
	Jitter  time.Duration
	Rate    int // bytes per second and direction; 0: all there is
	Slice   int // the size of a piece in bytes; 0: as they come
}

// Proxy passes connections on to one address.
type Proxy struct {
	target string
	l      net.Listener

	mu      sync.Mutex
	shape   Shape
	changed chan struct{} // closed when shape changes
	conns   map[net.Conn]struct{}
	wg      sync.WaitGroup
}

// Listen starts a proxy on a port of its own.
func Listen(target string) (*Proxy, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{target: target, l: l, changed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the proxy's host and port.
func (p *Proxy) Addr() string { return p.l.Addr().String() }

// Set changes what happens from now on.
func (p *Proxy) Set(s Shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shape = s
	close(p.changed)
	p.changed = make(chan struct{})
}

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}

// Close ends the proxy and waits until nothing of it runs.
func (p *Proxy) Close() {
	_ = p.l.Close()
	p.Set(Shape{})
	p.Cut()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(c) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.forget(client)
	p.remember(client)
	server, err := (&net.Dialer{Timeout: 5 * time.Second}).Dial("tcp", p.target)
	if err != nil {
		if tcp, ok := client.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // as if the port were closed
		}
		return
	}
	defer p.forget(server)
	p.remember(server)
	var both sync.WaitGroup
	both.Go(func() { p.pass(server, client) })
	both.Go(func() { p.pass(client, server) })
	both.Wait()
}

func (p *Proxy) remember(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
}

func (p *Proxy) forget(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
	_ = c.Close()
}

// pass copies one direction. When it ends both ends are closed, with a reset if one came in.
func (p *Proxy) pass(to, from net.Conn) {
	defer func() {
		_ = to.Close()
		_ = from.Close()
	}()
	buf := make([]byte, 32<<10)
	for {
		s := p.open(from)
		n := len(buf)
		if s.Slice > 0 {
			n = s.Slice
		}
		n, err := from.Read(buf[:n])
		if n > 0 {
			p.open(from) // what was under way when the hole opened waits too
			wait(s, n)
			if _, werr := to.Write(buf[:n]); werr != nil {
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
				_ = tcp.SetLinger(0)
			}
			return
		}
	}
}

// open waits until there is no hole, or the connection was cut, and returns the shape.
func (p *Proxy) open(c net.Conn) Shape {
	for {
		p.mu.Lock()
		s, changed := p.shape, p.changed
		_, there := p.conns[c]
		p.mu.Unlock()
		if !s.Hole || !there {
			return s
		}
		<-changed
	}
}

func wait(s Shape, n int) {
	d := s.Latency
	if s.Jitter > 0 {
		d += rand.N(s.Jitter)
	}
	if s.Rate > 0 {
		d += time.Duration(n) * time.Second / time.Duration(s.Rate)
	}
	if d > 0 {
		time.Sleep(d)
	}
}
