package broker

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
)

// startTLS makes the TLS handshake with host. The files are read here, on every dial, so that a rotated certificate is
// used by the next connection.
func startTLS(ctx context.Context, raw net.Conn, o TLSOptions, host string) (net.Conn, error) {
	config, err := TLSConfig(o, host)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errTLS, err)
	}
	c := tls.Client(raw, config)
	if err := c.HandshakeContext(ctx); err != nil {
		if ctx.Err() != nil {
			return nil, fmt.Errorf("tls handshake: %w", err) // a silent peer, not a bad certificate
		}
		return nil, fmt.Errorf("%w: %w", errTLS, err)
	}
	return c, nil
}

// TLSConfig is for connections to a host; an empty one is left to the client.
func TLSConfig(o TLSOptions, host string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(o.ServerName, host)}
	if o.CAFile != "" {
		pem, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read the CA file: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the CA file %s holds no certificate", o.CAFile)
		}
	}
	if (o.CertFile == "") != (o.KeyFile == "") {
		return nil, errors.New("a client certificate needs both its file and its key's file")
	}
	if o.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read the client certificate: %w", err)
		}
		// Certificates would be offered only when the server names our issuer; this one is always offered.
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	return c, nil
}
