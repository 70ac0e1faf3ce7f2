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
	AdminAddr string `env:"ADMIN_ADDR" envDefault:":9090" allowed:"'host:port', the host may be empty, the port is 0 to 65535"`

	// Everything that changes something or shows messages: drain, pause, dead letters, console. Needs
	// `SIDECAR_CONTROL_TOKEN` when it can be reached from other machines.
	ControlAddr string `env:"CONTROL_ADDR" envDefault:"127.0.0.1:9091" allowed:"'host:port', the port is 0 to 65535"`

	// Asked for as `Authorization: Bearer …` on the control listener. It allows everything there.
	ControlToken Secret `env:"CONTROL_TOKEN" allowed:"at least 16 visible ASCII characters, no spaces"`

	// A second token, which only reads and is shown no message bodies. Needs `SIDECAR_CONTROL_TOKEN`, and is another one.
	ControlReadToken Secret `env:"CONTROL_READ_TOKEN" allowed:"at least 16 visible ASCII characters, no spaces"`
}

func (l *loader) checkListen() {
	const admin, control, token = "SIDECAR_ADMIN_ADDR", "SIDECAR_CONTROL_ADDR", "SIDECAR_CONTROL_TOKEN"
	n := l.cfg.Listen
	l.checkReadToken()
	_, adminPort, err := parseAddr(n.AdminAddr)
	if err != nil {
		l.reject(admin, "%v", err)
	}
	host, controlPort, err := parseAddr(n.ControlAddr)
	if err != nil {
		l.reject(control, "%v", err)
		return
	}
	if l.ok(admin) && adminPort == controlPort && adminPort != 0 {
		l.reject(control, "has the same port as %s", admin)
	}
	if loopbackHost(host) || !l.ok(token) {
		return
	}
	if !n.ControlToken.IsSet() {
		l.reject(control, "can be reached from other machines, which needs %s; without one only loopback addresses such as "+
			"127.0.0.1:9091 are allowed", token)
		return
	}
	l.warn(control, "can be reached from other machines, and its token and all messages it shows travel unencrypted")
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

func checkControlToken(v string) error {
	if len(v) < minControlToken {
		return errors.New("is shorter than 16 characters")
	}
	return checkToken(v)
}

var errAddr = errors.New("is not host:port")

// parseAddr reads an address to listen on. Names of ports are refused: what they mean depends on the image.
func parseAddr(addr string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil || strings.Contains(text, "/") { // a URL or the path of a socket
		return "", 0, errAddr
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
