// Package proxy is a TCP proxy for tests. It passes connections on to one address and breaks them on demand:
//
//	client ──> listener ──Up──> server
//	       <───────────Down───
//
// Cut resets the open connections, Refuse also closes the port, Freeze stops the open connections, and Set changes how
// all connections pass bytes.
package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"time"
)

// Direction is a half of the traffic.
type Direction int

// Up is from the client to the server.
const (
	Up Direction = 1 << iota
	Down
	Both = Up | Down
)

// Shape is how connections pass bytes. The zero Shape passes them at once.
type Shape struct {
	Stall   Direction     // nothing passes, not even the end of a connection: a half-open link
	Latency time.Duration // of each piece, plus a random part of Jitter
	Jitter  time.Duration
	Rate    int // bytes per second and direction; 0: no limit
	Slice   int // the largest piece in bytes; 0: no limit
	// CutBehind ends a connection behind the first bytes of a piece from the server, as many as it returns; -1: the piece
	// passes.
	CutBehind func(piece []byte) int
}

// Options are for Start.
type Options struct {
	Target string                           // host:port of the server
	Listen string                           // host:port; empty: FreeAddr
	Wrap   func(net.Conn) (net.Conn, error) // e.g. a TLS handshake with the client; nil: none
}

// Proxy passes connections on to Options.Target.
type Proxy struct {
	o Options

	mu       sync.Mutex
	listener net.Listener
	shape    Shape
	changed  chan struct{} // closed when anything changes that holds bytes back
	links    map[*link]struct{}
	accepted int
	wg       sync.WaitGroup
}

// link is one connection of a client and the connection to the server that belongs to it.
type link struct {
	conns  []net.Conn
	frozen Direction
	ended  bool
}

// Start returns a proxy that accepts connections.
func Start(o Options) (*Proxy, error) {
	if o.Listen == "" {
		var err error
		if o.Listen, err = FreeAddr(); err != nil {
			return nil, err
		}
	}
	if o.Wrap == nil {
		o.Wrap = func(c net.Conn) (net.Conn, error) { return c, nil }
	}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	o.Listen = l.Addr().String()
	p := &Proxy{o: o, listener: l, changed: make(chan struct{}), links: map[*link]struct{}{}}
	p.wg.Go(func() { p.accept(l) })
	return p, nil
}

// FreeAddr returns a loopback address on which no process listens, and that no other process takes while the proxy
// refuses: the port is below those that the system assigns, and on Linux, which answers on all of 127.0.0.0/8, the host
// is random.
func FreeAddr() (addr string, err error) {
	for range 100 {
		port := strconv.Itoa(10000 + rand.IntN(20000))
		for _, host := range []string{fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254)),
			"127.0.0.1"} {
			var l net.Listener
			if l, err = net.Listen("tcp", net.JoinHostPort(host, port)); err == nil {
				return l.Addr().String(), l.Close()
			}
		}
	}
	return "", err
}

// Addr returns the host and port on which the proxy listens. They stay the same while it refuses.
func (p *Proxy) Addr() string { return p.o.Listen }

// Open accepts connections again after Refuse. It is an error when the port stays in use for half a minute: a process
// that is being started holds a copy of a closed socket for a moment.
func (p *Proxy) Open() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for end := time.Now().Add(30 * time.Second); p.listener == nil; time.Sleep(20 * time.Millisecond) {
		l, err := net.Listen("tcp", p.o.Listen)
		if err == nil {
			p.listener = l
			p.wg.Go(func() { p.accept(l) })
		} else if time.Now().After(end) {
			return fmt.Errorf("proxy: %w", err)
		}
	}
	return nil
}

// Refuse closes the port and resets every connection.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cut()
}

// Cut resets every open connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for l := range p.links {
		l.ended = true
		for _, c := range l.conns {
			reset(c)
		}
	}
	p.change()
}

// Set changes how bytes pass, on connections that are open now and on later ones.
func (p *Proxy) Set(s Shape) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shape = s
	p.change()
}

// Freeze stalls the connections that are open now. Later ones pass. The returned function ends it.
func (p *Proxy) Freeze(d Direction) (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var frozen []*link
	for l := range p.links {
		l.frozen |= d
		frozen = append(frozen, l)
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range frozen {
			l.frozen &^= d
		}
		p.change()
	}
}

// Accepted returns the number of connections so far.
func (p *Proxy) Accepted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.accepted
}

// Close ends the proxy and waits for its goroutines.
func (p *Proxy) Close() {
	p.Refuse()
	p.wg.Wait()
}

// change wakes what holds bytes back. p.mu is locked.
func (p *Proxy) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) accept(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	l := &link{}
	defer p.remove(l)
	if !p.add(l, client) {
		return
	}
	server, err := net.DialTimeout("tcp", p.o.Target, 5*time.Second)
	if err != nil {
		reset(client) // as if the port were closed
		return
	}
	if !p.add(l, server) {
		return
	}
	plain, err := p.o.Wrap(client)
	if err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pump(l, Up, server, plain) })
	both.Go(func() { p.pump(l, Down, plain, server) })
	both.Wait()
}

// add makes a connection part of a link. A connection that came while the proxy refused, or cut the link, is reset.
func (p *Proxy) add(l *link, c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil || l.ended {
		reset(c)
		return false
	}
	if len(l.conns) == 0 {
		p.accepted++
	}
	l.conns = append(l.conns, c)
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
	for _, c := range l.conns {
		_ = c.Close()
	}
}

// pump copies one direction. When it ends it closes both connections, with a reset if it read one.
func (p *Proxy) pump(l *link, d Direction, to, from net.Conn) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		s := p.await(l, d)
		size := len(buf)
		if s.Slice > 0 {
			size = min(size, s.Slice)
		}
		n, err := from.Read(buf[:size])
		s = p.await(l, d) // Read may have waited for longer
		if n > 0 {
			time.Sleep(s.delay(n))
			cut := -1
			if s.CutBehind != nil && d == Down {
				cut = s.CutBehind(buf[:n])
			}
			if cut >= 0 {
				n = cut
			}
			if _, werr := to.Write(buf[:n]); werr != nil || cut >= 0 {
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				reset(to)
			}
			return
		}
	}
}

// await waits until a direction of a link is not stalled, or the link has been cut, and returns the shape.
func (p *Proxy) await(l *link, d Direction) Shape {
	for {
		p.mu.Lock()
		s, changed := p.shape, p.changed
		held := (s.Stall|l.frozen)&d != 0 && !l.ended
		p.mu.Unlock()
		if !held {
			return s
		}
		<-changed
	}
}

// delay returns how long a piece of n bytes waits.
func (s Shape) delay(n int) time.Duration {
	d := s.Latency
	if s.Jitter > 0 {
		d += rand.N(s.Jitter)
	}
	if s.Rate > 0 {
		d += time.Duration(n) * time.Second / time.Duration(s.Rate)
	}
	return d
}

// BehindConfirm is a Shape.CutBehind for connections to a broker: it returns the length of piece up to the end of the
// first basic.ack that is whole; -1: there is none.
func BehindConfirm(piece []byte) int {
	ack := []byte{0, 0, 0, 13, 0, 60, 0, 80} // size, class and method; the tag, a bit and the end mark follow
	i := bytes.Index(piece, ack)
	if end := i + len(ack) + 10; i >= 0 && end <= len(piece) {
		return end
	}
	return -1
}

func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}
