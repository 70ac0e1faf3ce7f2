package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// maxAnswer bounds what is read of a local answer, in bytes.
const maxAnswer = 64 << 10

// local asks the sidecar that runs beside this process.
type local struct {
	variable string // that holds the address, for errors
	address  string
	token    string
	client   http.Client
}

func newLocal(variable, address, token string, timeout time.Duration) (*local, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", variable, err)
	}
	if port == "0" {
		return nil, fmt.Errorf("%s has port 0: a port chosen at start cannot be found from here", variable)
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if err == nil && ip.Is6() {
			host = "::1"
		}
	}
	return &local{
		variable: variable, address: net.JoinHostPort(host, port), token: token,
		client: http.Client{
			Timeout:   timeout,
			Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return http.ErrUseLastResponse
			},
		},
	}, nil
}

// ask returns the answer's status and body.
func (l *local) ask(ctx context.Context, method, path string) (int, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+l.address+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("%s: %w", l.variable, err)
	}
	if l.token != "" {
		r.Header.Set("Authorization", "Bearer "+l.token)
	}
	a, err := l.client.Do(r)
	if err != nil {
		return 0, nil, fmt.Errorf("ask the sidecar at %s (%s): %w", l.address, l.variable, err)
	}
	defer a.Body.Close() //nolint:errcheck // nothing is left to do about it
	body, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("read the sidecar's answer: %w", err)
	}
	return a.StatusCode, body, nil
}
