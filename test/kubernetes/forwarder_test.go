//go:build kubernetes

package kubernetes

import (
	"net"
	"net/url"

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
	target, err := url.Parse(env.amqp)
	if err != nil {
		s.t.Fatal(err)
	}
	if target.Port() == "" {
		target.Host = net.JoinHostPort(target.Hostname(), "5672")
	}
	p, err := proxy.Start(proxy.Options{Target: target.Host, Listen: ":0"})
	if err != nil {
		s.t.Fatal(err)
	}
	p.Refuse()
	s.t.Cleanup(p.Close)
	_, port, _ := net.SplitHostPort(p.Addr())
	u, err := url.Parse(env.amqpPods)
	if err != nil {
		s.t.Fatal(err)
	}
	u.Host = net.JoinHostPort(env.host, port)
	return &forwarder{p, s, u.String()}
}

func (f *forwarder) open() {
	f.s.t.Helper()
	if err := f.Open(); err != nil {
		f.s.t.Fatal(err)
	}
}
