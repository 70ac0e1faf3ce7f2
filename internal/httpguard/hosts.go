package httpguard

import (
	"net"
	"net/netip"
	"strings"
)

// Hosts decides which Host headers a listener answers to. A page that rebinds its own name to our address
// still sends that name, so names are refused unless they are known. Off loopback, where any name may be right, the
// token takes over: a rebound page does not have it.
type Hosts struct {
	loopback bool       // the listener is bound to a loopback address
	any      bool       // bound elsewhere, and a token is asked for
	bound    netip.Addr // the listener's address
	name     string     // the configured host, lower case
}

// NewHosts is for a listener that was configured as host:port and is bound to an address. token says that every request
// needs one.
func NewHosts(configured string, bound net.Addr, token bool) Hosts {
	var h Hosts
	if t, ok := bound.(*net.TCPAddr); ok {
		h.bound = t.AddrPort().Addr().Unmap().WithZone("")
	}
	h.loopback = h.bound.IsLoopback()
	h.any = token && !h.loopback
	name, _, err := net.SplitHostPort(configured)
	if err == nil {
		h.name = strings.ToLower(name)
	}
	return h
}

// Loopback reports whether only this machine reaches the listener.
func (h Hosts) Loopback() bool { return h.loopback }

// Allow checks a Host header. Its port is not compared: a port-forward has another one.
func (h Hosts) Allow(host string) bool {
	name, ok := hostname(host)
	if !ok {
		return false
	}
	if h.any || name == "localhost" || name == h.name {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip == h.bound
}

// hostname removes the port and an IPv6 address's brackets. It returns false for a value that is not a host.
func hostname(host string) (string, bool) {
	name := host
	if n, port, err := net.SplitHostPort(host); err == nil {
		if strings.Trim(port, "0123456789") != "" {
			return "", false
		}
		name = n
	} else if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		name = host[1 : len(host)-1]
	}
	return strings.ToLower(name), name != ""
}
