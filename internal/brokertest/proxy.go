package brokertest

import (
	"crypto/tls"
	"net"
	"net/url"
	"testing"

	"sidecar/internal/testkit/ca"
	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

// Authority issues certificates for one test.
type Authority = ca.Authority

// NewAuthority makes a certificate authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	return ca.New(t)
}

// Direction is a half of a Proxy's traffic.
type Direction = proxy.Direction

// Directions of a Proxy's traffic: Up is from client to broker.
const (
	Up   = proxy.Up
	Down = proxy.Down
	Both = proxy.Both
)

// Proxy is a TCP proxy in front of the broker that breaks the link on demand.
type Proxy struct{ *proxy.Proxy }

// NewProxy starts a proxy in front of the broker at target, an AMQP URL.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	return newProxy(t, target, proxy.Options{})
}

// NewTLSProxy starts a Proxy that speaks TLS to its clients, as config says, and plain AMQP to the broker at target.
func NewTLSProxy(t testing.TB, target string, config *tls.Config) *Proxy {
	t.Helper()
	return newProxy(t, target, proxy.Options{
		Listen: "127.0.0.1:0", // the host in the certificates
		Wrap: func(c net.Conn) (net.Conn, error) {
			server := tls.Server(c, config)
			return server, server.Handshake()
		},
	})
}

func newProxy(t testing.TB, target string, o proxy.Options) *Proxy {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatal("the target URL cannot be parsed")
	}
	o.Target = u.Host
	p := must.Get(proxy.Start(o))(t)
	t.Cleanup(p.Close)
	return &Proxy{p}
}

// URL returns base with the proxy's address instead of the broker's.
func (p *Proxy) URL(t testing.TB, base string) string {
	t.Helper()
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal("the base URL cannot be parsed")
	}
	u.Host = p.Addr()
	return u.String()
}

// Restore accepts connections again and lets everything through.
func (p *Proxy) Restore(t testing.TB) {
	t.Helper()
	p.Set(proxy.Shape{})
	must.Do(t, p.Open())
}

// Stall holds back what flows in d, for connections open now and later, until Restore.
func (p *Proxy) Stall(d Direction) { p.Set(proxy.Shape{Stall: d}) }

// CutBehindAcks ends every connection right behind the first confirm that the broker sends on it, until Restore.
func (p *Proxy) CutBehindAcks() { p.Set(proxy.Shape{CutBehind: proxy.BehindConfirm}) }
