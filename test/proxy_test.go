package test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a sidecar and a broker and breaks the link in the ways networks do.
type proxy struct {
	t            testing.TB
	addr, target string

	mu     sync.Mutex
	l      net.Listener
	links  map[*link]struct{}
	dialed int
}

type link struct {
	client, server net.Conn
	mu             sync.Mutex // held while frozen
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	p := &proxy{t: t, addr: freeAddr(t), target: target, links: map[*link]struct{}{}}
	p.up()
	t.Cleanup(func() { p.down() })
	return p
}

// up opens the port.
func (p *proxy) up() {
	p.t.Helper()
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		p.t.Fatalf("the proxy cannot listen: %v", err)
	}
	p.mu.Lock()
	p.l = l
	p.mu.Unlock()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go p.join(c)
		}
	}()
}

// down closes the port and resets every link.
func (p *proxy) down() {
	p.mu.Lock()
	_ = p.l.Close()
	p.mu.Unlock()
	p.cut()
}

// cut resets every link; the port stays open.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		reset(l.client)
		reset(l.server)
	}
}

// freeze lets no more bytes pass on today's links and tells neither side: a half-open connection. The returned
// function thaws them.
func (p *proxy) freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var frozen []*link
	for l := range p.links {
		l.mu.Lock()
		frozen = append(frozen, l)
	}
	return sync.OnceFunc(func() {
		for _, l := range frozen {
			l.mu.Unlock()
		}
	})
}

func (p *proxy) join(client net.Conn) {
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		reset(client)
		return
	}
	l := &link{client: client, server: server}
	p.mu.Lock()
	p.links[l] = struct{}{}
	p.dialed++
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { l.pump(server, client) })
	both.Go(func() { l.pump(client, server) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func (l *link) pump(to, from net.Conn) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			l.mu.Lock()
			_, werr := to.Write(buf[:n])
			l.mu.Unlock()
			if werr != nil {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				reset(to)
			}
			return
		}
	}
}
