package brokertest

import (
	"net"
	"net/url"
	"sync"
	"testing"
	"time"
)

// Proxy stands between the code under test and the broker and breaks the link on demand.
//
//	client ──> listener ──up──> broker
//	       <────────────down───
//
// Cut breaks what is open and takes new connections; Refuse breaks and takes none; Stall keeps every connection open
// and lets nothing through, in the direction it names or in both: a half-open link.
type Proxy struct {
	target string
	addr   string
	wrap   func(net.Conn) (net.Conn, error)

	mu       sync.Mutex
	listener net.Listener
	conns    map[net.Conn]struct{}
	up, down *gate
	wg       sync.WaitGroup
}

// Direction names a half of a Proxy's traffic.
type Direction int

// Up is from client to broker.
const (
	Up Direction = 1 << iota
	Down
	Both = Up | Down
)

// NewProxy starts a proxy in front of the broker at target, an AMQP URL.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return newProxy(t, target, func(c net.Conn) (net.Conn, error) { return c, nil })
}

func newProxy(t testing.TB, target string, wrap func(net.Conn) (net.Conn, error)) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal("the target URL cannot be parsed")
	}
	p := &Proxy{
		target: u.Host, addr: "127.0.0.1:0", wrap: wrap,
		conns: map[net.Conn]struct{}{}, up: newGate(), down: newGate(),
	}
	p.Restore(t)
	t.Cleanup(p.close)
	return p
}

// Addr is the host and port the proxy listens on; it stays the same when the proxy refuses for a while.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addr
}

// URL is base with the proxy's address instead of the broker's.
func (p *Proxy) URL(t testing.TB, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal("the base URL cannot be parsed")
	}
	u.Host = p.Addr()
	return u.String()
}

// Restore takes connections again and lets everything through.
func (p *Proxy) Restore(t testing.TB) {
	t.Helper()
	p.up.open()
	p.down.open()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return
	}
	// A process that was being started when the port was closed holds a copy of the socket for a moment.
	var l net.Listener
	Eventually(t, 30*time.Second, "listening on "+p.addr, func() bool {
		var err error
		l, err = net.Listen("tcp", p.addr)
		return err == nil
	})
	p.listener, p.addr = l, l.Addr().String()
	p.wg.Add(1)
	go p.accept(l)
}

// Refuse breaks every connection and refuses new ones until Restore.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	p.mu.Unlock()
	p.Cut()
}

// Cut breaks every open connection with a reset.
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

// Stall holds back what flows in d, for connections open now and later, until Restore.
func (p *Proxy) Stall(d Direction) {
	if d&Up != 0 {
		p.up.shut()
	}
	if d&Down != 0 {
		p.down.shut()
	}
}

// Open counts the connections that stand at present.
func (p *Proxy) Open() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns) / 2
}

func (p *Proxy) close() {
	p.Refuse()
	p.up.open()
	p.down.open()
	p.wg.Wait()
}

func (p *Proxy) accept(l net.Listener) {
	defer p.wg.Done()
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		p.wg.Add(1)
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer p.wg.Done()
	defer func() { _ = client.Close() }()
	broker, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer func() { _ = broker.Close() }()
	if !p.track(client, broker) {
		return
	}
	defer p.forget(client, broker)
	plain, err := p.wrap(client)
	if err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.up.copy(broker, plain)
		_ = broker.Close()
	}()
	p.down.copy(plain, broker)
	_ = plain.Close()
	_ = client.Close()
	<-done
}

// track is false when the proxy began to refuse while the connection was made.
func (p *Proxy) track(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener == nil {
		return false
	}
	for _, c := range conns {
		p.conns[c] = struct{}{}
	}
	return true
}

func (p *Proxy) forget(conns ...net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range conns {
		delete(p.conns, c)
	}
}
