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
	up, down       sync.Mutex // held while nothing may pass in that direction
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
	l := listen(p.t, p.addr)
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
	return p.hold(func(l *link) []*sync.Mutex { return []*sync.Mutex{&l.up, &l.down} })
}

// mute lets nothing more come back from the broker on today's links; what the sidecar sends still arrives there.
func (p *proxy) mute() (thaw func()) {
	return p.hold(func(l *link) []*sync.Mutex { return []*sync.Mutex{&l.down} })
}

func (p *proxy) hold(which func(*link) []*sync.Mutex) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var held []*sync.Mutex
	for l := range p.links {
		for _, m := range which(l) {
			m.Lock()
			held = append(held, m)
		}
	}
	return sync.OnceFunc(func() {
		for _, m := range held {
			m.Unlock()
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
	both.Go(func() { pump(server, client, &l.up) })
	both.Go(func() { pump(client, server, &l.down) })
	both.Wait()
	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

func pump(to, from net.Conn, open *sync.Mutex) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			open.Lock()
			_, werr := to.Write(buf[:n])
			open.Unlock()
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
