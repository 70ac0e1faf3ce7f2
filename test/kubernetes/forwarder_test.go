//go:build kubernetes

package kubernetes

import (
	"net"
	"net/url"

	"sidecar/internal/testkit/must"
	"sidecar/internal/testkit/proxy"
)

// forwarder is an address of the broker that a test opens and closes. It is closed at first.
type forwarder struct {
	*proxy.Proxy
	s   *scene
	url string // as pods reach it
}

func (s *scene) newForwarder() *forwarder {
	s.t.Helper()
	target := must.Get(url.Parse(env.amqp))(s.t)
	if target.Port() == "" {
		target.Host = net.JoinHostPort(target.Hostname(), "5672")
	}
	p := must.Get(proxy.Start(proxy.Options{Target: target.Host, Listen: ":0"}))(s.t)
	p.Refuse()
	s.t.Cleanup(p.Close)
	_, port, _ := net.SplitHostPort(p.Addr())
	u := must.Get(url.Parse(env.amqpPods))(s.t)
	u.Host = net.JoinHostPort(env.host, port)
	return &forwarder{p, s, u.String()}
}

func (f *forwarder) open() {
	f.s.t.Helper()
	must.Do(f.s.t, f.Open())
}
