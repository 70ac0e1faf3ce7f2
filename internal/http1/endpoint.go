package http1

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
)

// Endpoint is where requests go, parsed once.
type Endpoint struct {
	network, address string // for the dialer
	secure           bool
	serverName       string
	Origin           string // the URL up to its path
	Host             string // the Host header
	Target           string // the request target: path and query
}

// ParseEndpoint reads an app URL. The configuration has judged it, and its path and query are sent as they are. The
// errors never repeat the URL, which may hold a secret by mistake.
func ParseEndpoint(raw string) (Endpoint, error) {
	if rest, ok := strings.CutPrefix(raw, "unix://"); ok {
		socket, path, _ := strings.Cut(rest, ":/") // the HTTP path may be missing
		origin := "unix://" + socket + ":"
		return Endpoint{network: "unix", address: socket, Origin: origin, Host: "localhost", Target: "/" + path}, nil
	}
	u, err := url.Parse(raw)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return Endpoint{}, fmt.Errorf("parse: %w", err)
	}
	port, known := map[string]string{"http": "80", "https": "443"}[u.Scheme]
	if !known {
		return Endpoint{}, errors.New("scheme must be http, https or unix")
	}
	if u.Hostname() == "" || !Printable(u.Host) || strings.Contains(u.Host, "%") {
		return Endpoint{}, errors.New("a plain host name or IP address is needed")
	}
	return Endpoint{
		network: "tcp", address: net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), port)), secure: u.Scheme == "https",
		serverName: u.Hostname(), Origin: u.Scheme + "://" + u.Host, Host: u.Host, Target: u.RequestURI(),
	}, nil
}

// Printable reports whether s is ASCII without control characters.
func Printable(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] > 0x7e {
			return false
		}
	}
	return true
}
