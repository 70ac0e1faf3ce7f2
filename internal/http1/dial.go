package http1

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

// dialer opens connections to one endpoint. It never consults the environment for a proxy.
type dialer struct {
	endpoint *Endpoint
	tls      *tls.Config // nil = plain
	connect  func(ctx context.Context, network, address string) (net.Conn, error)
}

func newDialer(ep *Endpoint, base *tls.Config) dialer {
	d := dialer{endpoint: ep, connect: new(net.Dialer).DialContext}
	if !ep.secure {
		return d
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if base != nil {
		cfg = base.Clone()
	}
	// Offering h2 would let the server choose a protocol that this client does not have.
	cfg.NextProtos = []string{"http/1.1"}
	if cfg.ServerName == "" {
		cfg.ServerName = ep.serverName
	}
	if cfg.ClientSessionCache == nil {
		cfg.ClientSessionCache = tls.NewLRUClientSessionCache(8)
	}
	d.tls = cfg
	return d
}

// dial connects, TLS handshake included, before deadline. Whatever it fails with, no byte of a request was sent.
func (d dialer) dial(ctx context.Context, deadline time.Time) (*conn, error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	raw, err := d.connect(ctx, d.endpoint.network, d.endpoint.address)
	if err != nil {
		return nil, err
	}
	if d.tls == nil {
		return newConn(raw, nil), nil
	}
	secure := tls.Client(raw, d.tls)
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	return newConn(raw, secure), nil
}
