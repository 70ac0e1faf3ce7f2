package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// AMQP is where the broker is and who we are there.
type AMQP struct {
	// `amqp://user:password@host:5672/vhost`, or `amqps://…` (port 5671) for TLS. Several URLs, separated by commas, are
	// tried in turn. Reserved characters in user and password are percent-encoded; it is easier to use
	// `SIDECAR_AMQP_USERNAME` and `SIDECAR_AMQP_PASSWORD`, which take them as they are. No vhost, `/` and `/%2f` all mean
	// the vhost `/`; `/orders` means `orders`; a slash in a vhost name is `%2f`. Query parameters are refused: what they
	// could say has a variable of its own.
	URL Secret `env:"AMQP_URL" check:"amqp" envDefault:"amqp://guest:guest@127.0.0.1:5672/" allowed:"'amqp://' or 'amqps://' URLs separated by commas, each with a host and a port from 1 to 65535, without query and fragment"`

	// User name, instead of the one in the URL.
	Username Secret `env:"AMQP_USERNAME" check:"credential" otherwise:"from the URL" allowed:"any characters except NUL, not empty"`

	// Password, instead of the one in the URL.
	Password Secret `env:"AMQP_PASSWORD" check:"credential" otherwise:"from the URL" allowed:"any characters except NUL, not empty"`

	// File with the certificates (PEM) that the broker's certificate is checked against.
	TLSCAFile string `env:"AMQP_TLS_CA_FILE" check:"certificate" otherwise:"the system's" allowed:"path of a PEM file with at least one certificate that has not expired"`

	// File with our client certificate (PEM), for brokers that ask for one. Where no URL has a user, all are `amqps://`
	// and neither `SIDECAR_AMQP_USERNAME` nor `SIDECAR_AMQP_PASSWORD` is set, the broker takes the user from the
	// certificate (SASL `EXTERNAL`).
	TLSCertFile string `env:"AMQP_TLS_CERT_FILE" allowed:"path of a PEM file; together with SIDECAR_AMQP_TLS_KEY_FILE"`

	// File with the private key (PEM, not encrypted) of our client certificate.
	TLSKeyFile string `env:"AMQP_TLS_KEY_FILE" allowed:"path of a PEM file; together with SIDECAR_AMQP_TLS_CERT_FILE"`

	// Name that the broker's certificate must carry.
	TLSServerName string `env:"AMQP_TLS_SERVER_NAME" check:"host" otherwise:"host of the URL" allowed:"a host name or IP address"`

	// RabbitMQ's management HTTP API: `http://user:password@host:15672`, or `https://…`, checked with the certificates of
	// `SIDECAR_AMQP_TLS_CA_FILE`. `sidecar check` reads there what AMQP does not show: bindings, policies and old retry
	// queues. `sidecar run` never connects to it. A URL without user and password takes those of AMQP. The user needs the
	// tag `management`.
	ManagementURL Secret `env:"MANAGEMENT_URL" check:"management" allowed:"an 'http://' or 'https://' URL with a host, without query and fragment"`
}

// URLs returns the broker's URLs in order, read again if they come from a file that has changed. They hold passwords.
func (a *AMQP) URLs() ([]string, error) {
	list, err := a.URL.Value()
	if err != nil {
		return nil, err
	}
	return itemsOf(list), nil
}

// External reports whether the client certificate says who we are: there is one, and no user or password.
func (a *AMQP) External() bool {
	urls, _ := a.URLs() // with an error come the last good ones
	named := slices.ContainsFunc(urls, func(raw string) bool {
		u, err := parseAMQPURL(raw)
		return err != nil || u.User != nil || u.Scheme != "amqps"
	})
	return !named && a.TLSCertFile != "" && a.TLSKeyFile != "" && !a.Username.IsSet() && !a.Password.IsSet()
}

// links reports whether any link is encrypted, any is not and leaves this machine, and any leaves it for the user
// guest.
func links(urls []string) (encrypted, exposed, guest bool) {
	for _, raw := range urls {
		u, _ := parseAMQPURL(raw)
		tls, remote := u.Scheme == "amqps", !loopbackHost(u.Hostname())
		encrypted = encrypted || tls
		exposed = exposed || remote && !tls
		guest = guest || remote && (u.User == nil || u.User.Username() == "guest") // the client library assumes guest
	}
	return encrypted, exposed, guest
}

// checkAMQP refuses TLS settings that would not be used: with them set the link would be taken for encrypted.
func (l *loader) checkAMQP() {
	const name, ca, cert, key = "SIDECAR_AMQP_URL", "SIDECAR_AMQP_TLS_CA_FILE", "SIDECAR_AMQP_TLS_CERT_FILE",
		"SIDECAR_AMQP_TLS_KEY_FILE"
	a := &l.cfg.AMQP
	l.checkKeyPair(l.byName[cert], l.byName[key])
	if !l.ok(name) {
		return
	}
	list, _ := a.URL.Value() // checked a moment ago, and what is returned even with an error has passed the check
	encrypted, exposed, guest := links(itemsOf(list))
	if exposed {
		l.warn(name, "the link to the broker is not encrypted and leaves this machine: use amqps")
	}
	if guest && !a.Username.IsSet() && !a.External() {
		l.warn(name, "the user guest is refused by brokers on other machines unless they are configured otherwise: give the "+
			"sidecar a user of its own")
	}
	m := l.management()
	for _, unused := range []string{ca, cert, key, "SIDECAR_AMQP_TLS_SERVER_NAME"} {
		used := encrypted || unused == ca && m != nil && m.Scheme == "https"
		if !used && l.isSet(unused) && l.ok(unused) {
			l.reject(unused, "needs an amqps:// URL in SIDECAR_AMQP_URL: without one it would not be used")
		}
	}
}

func checkAMQPURLs(list string) error {
	urls := itemsOf(list)
	for i, u := range urls {
		_, err := parseAMQPURL(u)
		if err == nil && slices.Contains(urls[:i], u) {
			err = errors.New("is there twice")
		}
		if err != nil && len(urls) > 1 {
			err = fmt.Errorf("URL %d of %d: %w", i+1, len(urls), err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const encodeHint = ": a reserved character in user or password must be percent-encoded, or use SIDECAR_AMQP_USERNAME " +
	"and SIDECAR_AMQP_PASSWORD, which take any"

// parseAMQPURL is stricter than the client library, which would let query parameters override our settings (a heartbeat
// of 0 there even turns heartbeats off).
//
// A password with a reserved character in it is cut in the wrong place, so the apparent port, path or query may be half
// a password: no error repeats any part of the URL, and a raw '@' behind the host is refused.
func parseAMQPURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, errors.New("is empty")
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return nil, errors.New("holds a space or a control character")
	}
	u, err := parseURL(raw, encodeHint, "amqp", "amqps")
	switch {
	case err != nil:
		return nil, err
	case strings.Contains(raw, "#"):
		return nil, errors.New("holds a fragment" + encodeHint)
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("has query parameters, which are not read: use SIDECAR_AMQP_TLS_… and the like" + encodeHint)
	case strings.ContainsAny(strings.TrimPrefix(u.EscapedPath(), "/"), "/@"):
		return nil, errors.New("holds a '/' or '@' in the vhost (write %2f or %40 there)" + encodeHint)
	}
	return u, nil
}

// redactURLs shows where the URLs lead and hides who goes there.
func redactURLs(list string) string {
	urls := itemsOf(list)
	for i, raw := range urls {
		urls[i] = redactURL(raw)
	}
	return strings.Join(urls, ",")
}

func redactURL(raw string) string {
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return masked
	case u.User != nil:
		return u.Scheme + "://" + masked + "@" + u.Host + u.EscapedPath()
	}
	return raw
}
