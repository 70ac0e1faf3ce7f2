package config

import (
	"errors"
	"net/netip"
	"strings"
	"time"
)

// The values of SIDECAR_AMQP_SASL.
const (
	SASLPlain    = "plain"
	SASLExternal = "external"
)

// AMQP is where the broker is and who we are there.
type AMQP struct {
	// `amqp://user:password@host:5672/vhost`, or `amqps://…` (port 5671) for TLS. Several URLs, separated by commas, are
	// tried in turn. Reserved characters in user and password are percent-encoded; it is easier to use
	// `SIDECAR_AMQP_USERNAME` and `SIDECAR_AMQP_PASSWORD`, which take them as they are. No vhost, `/` and `/%2f` all mean
	// the vhost `/`; `/orders` means `orders`; a slash in a vhost name is `%2f`. Query parameters are refused: what they
	// could say has a variable of its own.
	URL Secret `env:"AMQP_URL" envDefault:"amqp://guest:guest@127.0.0.1:5672/" allowed:"'amqp://' or 'amqps://' URLs separated by commas, each with a host and a port from 1 to 65535, without query and fragment"`

	// User name, instead of the one in the URL.
	Username Secret `env:"AMQP_USERNAME" otherwise:"from the URL" allowed:"any characters except NUL, not empty"`

	// Password, instead of the one in the URL.
	Password Secret `env:"AMQP_PASSWORD" otherwise:"from the URL" allowed:"any characters except NUL, not empty"`

	// How to log in. `external`: the broker takes the user from the client certificate.
	SASL string `env:"AMQP_SASL" envDefault:"plain" oneof:"plain|external"`

	// File with the certificates (PEM) that the broker's certificate is checked against.
	TLSCAFile string `env:"AMQP_TLS_CA_FILE" otherwise:"the system's" allowed:"path of a PEM file with at least one certificate that has not expired"`

	// File with our client certificate (PEM), for brokers that ask for one.
	TLSCertFile string `env:"AMQP_TLS_CERT_FILE" allowed:"path of a PEM file; together with SIDECAR_AMQP_TLS_KEY_FILE"`

	// File with the private key (PEM, not encrypted) of our client certificate.
	TLSKeyFile string `env:"AMQP_TLS_KEY_FILE" allowed:"path of a PEM file; together with SIDECAR_AMQP_TLS_CERT_FILE"`

	// Name that the broker's certificate must carry.
	TLSServerName string `env:"AMQP_TLS_SERVER_NAME" otherwise:"host of the URL" allowed:"a host name or IP address"`

	// A link on which nothing was received for about twice this long is dead.
	Heartbeat time.Duration `env:"AMQP_HEARTBEAT" envDefault:"10s" range:"1s..5m" unit:"1s"`
}

// URLs returns the broker's URLs in order, read again if they come from a file that has changed. They hold passwords.
func (a *AMQP) URLs() ([]string, error) {
	list, err := a.URL.Value()
	if err != nil {
		return nil, err
	}
	return splitURLs(list), nil
}

func (l *loader) checkAMQP() {
	a := &l.cfg.AMQP
	l.checkAMQPTLS()
	if !l.ok("SIDECAR_AMQP_URL") {
		return
	}
	list, _ := a.URL.Value() // checked a moment ago, and what is returned even with an error has passed the check
	var tls, plain, remotePlain, remoteGuest int
	for _, u := range splitURLs(list) {
		e, _ := parseAMQPURL(u)
		remote := !loopbackHost(e.host)
		switch {
		case e.tls:
			tls++
		case remote:
			plain, remotePlain = plain+1, remotePlain+1
		default:
			plain++
		}
		if remote && e.user == "guest" && !a.Username.IsSet() && a.SASL == SASLPlain {
			remoteGuest++
		}
	}
	if remotePlain > 0 {
		l.warn("SIDECAR_AMQP_URL", "the link to the broker is not encrypted and leaves this machine: use amqps")
	}
	if remoteGuest > 0 {
		l.warn("SIDECAR_AMQP_URL", "the user guest is refused by brokers on other machines unless they are configured "+
			"otherwise: give the sidecar a user of its own")
	}
	l.checkTLSUse(tls, plain)
}

// checkTLSUse refuses TLS settings that would not be used: with them set the link would be taken for encrypted.
func (l *loader) checkTLSUse(tls, plain int) {
	a := &l.cfg.AMQP
	if tls == 0 {
		for name, value := range map[string]string{
			"SIDECAR_AMQP_TLS_CA_FILE": a.TLSCAFile, "SIDECAR_AMQP_TLS_CERT_FILE": a.TLSCertFile,
			"SIDECAR_AMQP_TLS_KEY_FILE": a.TLSKeyFile, "SIDECAR_AMQP_TLS_SERVER_NAME": a.TLSServerName,
		} {
			if value != "" && l.ok(name) {
				l.reject(name, "needs an amqps:// URL in SIDECAR_AMQP_URL: without one it would not be used")
			}
		}
	}
	if a.SASL != SASLExternal {
		return
	}
	switch {
	case plain > 0:
		l.reject("SIDECAR_AMQP_SASL", "external needs TLS: every URL in SIDECAR_AMQP_URL must be amqps://")
	case a.TLSCertFile == "" || a.TLSKeyFile == "":
		l.reject("SIDECAR_AMQP_SASL", "external needs a client certificate: set SIDECAR_AMQP_TLS_CERT_FILE and "+
			"SIDECAR_AMQP_TLS_KEY_FILE")
	}
	if a.Username.IsSet() || a.Password.IsSet() {
		l.warn("SIDECAR_AMQP_SASL", "external takes the user from the certificate: SIDECAR_AMQP_USERNAME and "+
			"SIDECAR_AMQP_PASSWORD are not used")
	}
}

func (l *loader) checkAMQPTLS() {
	const ca, cert, key, server = "SIDECAR_AMQP_TLS_CA_FILE", "SIDECAR_AMQP_TLS_CERT_FILE", "SIDECAR_AMQP_TLS_KEY_FILE",
		"SIDECAR_AMQP_TLS_SERVER_NAME"
	a := &l.cfg.AMQP
	l.checkCAFile(ca, a.TLSCAFile)
	l.checkKeyPair(cert, a.TLSCertFile, key, a.TLSKeyFile)
	if a.TLSServerName != "" && !validHost(a.TLSServerName) {
		l.reject(server, "not a host name")
	}
}

// checkCredential holds for user name and password: SASL PLAIN separates its fields by NUL.
func checkCredential(v string) error {
	if strings.ContainsRune(v, 0) {
		return errors.New("holds a NUL byte")
	}
	return nil
}

func loopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.Unmap().IsLoopback()
}
