package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"sidecar/internal/testkit/must"
)

// echo returns a proxy in front of a server that sends back what it receives.
func echo(t *testing.T) *Proxy {
	t.Helper()
	l := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	return proxyOf(t, l.Addr().String())
}

func proxyOf(t *testing.T, target string) *Proxy {
	t.Helper()
	p := must.Get(Start(Options{Target: target}))(t)
	t.Cleanup(p.Close)
	return p
}

// dial opens a connection and checks that it works.
func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c := must.Get(net.Dial("tcp", p.Addr()))(t)
	t.Cleanup(func() { _ = c.Close() })
	_, _ = io.WriteString(c, "hello")
	must.Do(t, read(c, time.Minute))
	return c
}

func read(c net.Conn, limit time.Duration) error {
	_ = c.SetReadDeadline(time.Now().Add(limit))
	_, err := io.ReadFull(c, make([]byte, len("hello")))
	return err
}

func TestCutAndRefuse(t *testing.T) {
	t.Parallel()
	p := echo(t)
	c := dial(t, p)
	p.Cut()
	if err := read(c, time.Minute); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Cut: %v", err)
	}
	c = dial(t, p)
	p.Refuse()
	if err := read(c, time.Minute); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after Refuse: %v", err)
	}
	if _, err := net.Dial("tcp", p.Addr()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial after Refuse: %v", err)
	}
	must.Do(t, p.Open())
	dial(t, p)
	if n := p.Accepted(); n != 3 {
		t.Errorf("%d connections accepted, want 3", n)
	}
}

// TestHeldBytesArriveLater: a direction that is stalled or frozen passes nothing until it is released, or never after a
// cut.
func TestHeldBytesArriveLater(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]func(*Proxy) (release func()){
		"stall up":    func(p *Proxy) func() { p.Set(Shape{Stall: Up}); return func() { p.Set(Shape{}) } },
		"stall down":  func(p *Proxy) func() { p.Set(Shape{Stall: Down}); return func() { p.Set(Shape{}) } },
		"freeze both": func(p *Proxy) func() { return p.Freeze(Both) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := echo(t)
			c := dial(t, p)
			release := hold(p)
			_, _ = io.WriteString(c, "hello")
			if err := read(c, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("while held: %v", err)
			}
			if name == "freeze both" {
				dial(t, p) // a later connection passes
			}
			release()
			if err := read(c, time.Minute); err != nil {
				t.Errorf("after the release: %v", err)
			}
			hold(p)
			p.Cut()
			if err := read(c, time.Minute); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("cut while held: %v", err)
			}
		})
	}
}

func TestPieces(t *testing.T) {
	t.Parallel()
	p := echo(t)
	p.Set(Shape{Latency: 10 * time.Millisecond, Jitter: time.Millisecond, Rate: 1000, Slice: 1})
	began := time.Now()
	dial(t, p)
	if took := time.Since(began); took < 50*time.Millisecond { // five pieces of one byte, one after the other
		t.Errorf("five pieces took %v", took)
	}
}

func TestServerAway(t *testing.T) {
	t.Parallel()
	p := proxyOf(t, must.Get(FreeAddr())(t))
	c, err := net.Dial("tcp", p.Addr())
	if err == nil {
		err = read(c, time.Minute)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v", err)
	}
}
