package config

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// minControlToken is the shortest control token, in bytes.
const minControlToken = 16

// Listen is the sidecar's own listeners.
type Listen struct {
	// Health, metrics and `/drained`. Read-only.
	AdminAddr string `env:"ADMIN_ADDR" check:"listener" envDefault:":9090" allowed:"'host:port', the host may be empty, the port is 0 to 65535"`

	// Everything that changes something or shows messages: drain, pause, dead letters, console. Needs
	// `SIDECAR_CONTROL_TOKEN` when it can be reached from other machines.
	ControlAddr string `env:"CONTROL_ADDR" check:"listener" envDefault:"127.0.0.1:9091" allowed:"'host:port', the port is 0 to 65535"`

	// Asked for as `Authorization: Bearer …` on the control listener. It allows everything there.
	ControlToken Secret `env:"CONTROL_TOKEN" check:"longtoken" allowed:"at least 16 visible ASCII characters, no spaces"`

	// A second token, which only reads and is shown no message bodies. Needs `SIDECAR_CONTROL_TOKEN`, and is another one.
	ControlReadToken Secret `env:"CONTROL_READ_TOKEN" check:"longtoken" allowed:"at least 16 visible ASCII characters, no spaces"`
}

// listeners are the sidecar's own. One without a token can be reached from anywhere.
var listeners = []struct{ name, token, example, shows string }{
	{name: "SIDECAR_ADMIN_ADDR"},
	{"SIDECAR_CONTROL_ADDR", "SIDECAR_CONTROL_TOKEN", "127.0.0.1:9091", "all messages it shows"},
	{"SIDECAR_PUBLISH_ADDR", "SIDECAR_PUBLISH_TOKEN", "127.0.0.1:9092", "all messages"},
}

func (l *loader) checkListen() {
	l.checkReadToken()
	used := map[int]string{}
	for _, n := range listeners {
		addr := l.byName[n.name].value.String()
		if addr == "" || !l.ok(n.name) {
			continue
		}
		host, port, _ := parseAddr(addr)
		if other := used[port]; other != "" && port != 0 {
			l.reject(n.name, "has the same port as %s", other)
		} else {
			used[port] = n.name
		}
		switch {
		case n.token == "" || loopbackHost(host) || !l.ok(n.token):
		case l.isSet(n.token):
			l.warn(n.name, "can be reached from other machines, and its token and %s travel unencrypted", n.shows)
		default:
			l.reject(n.name, "can be reached from other machines, which needs %s; without one only loopback addresses such as "+
				"%s are allowed", n.token, n.example)
		}
	}
}

// checkReadToken refuses a token that would be the only one, so that nothing could be changed, or that equals the other
// one.
func (l *loader) checkReadToken() {
	const token, read = "SIDECAR_CONTROL_TOKEN", "SIDECAR_CONTROL_READ_TOKEN"
	if !l.isSet(read) || !l.ok(token, read) {
		return
	}
	if !l.isSet(token) {
		l.reject(read, "needs %s, which alone may change anything", token)
		return
	}
	write, _ := l.cfg.Listen.ControlToken.Value() // both were read a moment ago
	if only, _ := l.cfg.Listen.ControlReadToken.Value(); only == write {
		l.reject(read, "is the same as %s", token)
	}
}

var checkControlToken = inTurn(
	require(func(v string) bool { return len(v) >= minControlToken }, "is shorter than 16 characters"), checkToken)

func checkAddr(addr string) error {
	_, _, err := parseAddr(addr)
	return err
}

// parseAddr reads an address to listen on. Names of ports are refused: what they mean depends on the image.
func parseAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(text, "/") { // a URL or the path of a socket
		return "", 0, errors.New("is not host:port: a port alone is written as :9090")
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, errors.New("has a port outside 0 to 65535")
	}
	if host != "" && !validHost(host) {
		return "", 0, errors.New("has an invalid host")
	}
	return host, int(n), nil
}

// anyHost reports whether a listener on host takes connections to every address of the machine.
func anyHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "" || (err == nil && a.IsUnspecified())
}
