package test

import (
	"testing"

	proxykit "sidecar/internal/testkit/proxy"
)

// proxy is a TCP proxy between a sidecar and a server. The test breaks its connections.
type proxy struct {
	*proxykit.Proxy
	t    testing.TB
	addr string
}

func newProxy(t testing.TB, target string) *proxy {
	t.Helper()
	p, err := proxykit.Start(proxykit.Options{Target: target})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return &proxy{p, t, p.Addr()}
}

// up opens the port again.
func (p *proxy) up() {
	p.t.Helper()
	if err := p.Open(); err != nil {
		p.t.Fatal(err)
	}
}

// down closes the port and resets every connection.
func (p *proxy) down() { p.Refuse() }

// cut resets every connection; the port stays open.
func (p *proxy) cut() { p.Cut() }

// mute lets nothing more come from the server on the open connections. What the sidecar sends still arrives there.
func (p *proxy) mute() (thaw func()) { return p.Freeze(proxykit.Down) }
