package config

import (
	"errors"
	"net/url"
	"strings"
)

const managementURL = "SIDECAR_MANAGEMENT_URL"

func parseManagementURL(raw string) (*url.URL, error) {
	const hint = ": a reserved character in user or password must be percent-encoded"
	if err := checkURLChars(raw); err != nil {
		return nil, errors.New(err.Error() + hint)
	}
	u, err := parseURL(raw, hint, "http", "https")
	switch {
	case err != nil:
		return nil, err
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("has a query" + hint)
	case u.User != nil && u.User.Username() == "":
		return nil, errors.New("has an empty user")
	case strings.Contains(u.EscapedPath(), "@"):
		return nil, errors.New("has a '@' in the path" + hint)
	}
	return u, checkPathSegments(u.EscapedPath())
}

func checkManagementURL(raw string) error {
	_, err := parseManagementURL(raw)
	return err
}

// checkManagement judges the URL together with the settings of AMQP, which it takes its user from.
func (l *loader) checkManagement() {
	u := l.management()
	if u == nil {
		return
	}
	if u.User == nil && l.cfg.AMQP.SASL == SASLExternal {
		l.reject(managementURL, "needs a user and a password: with SIDECAR_AMQP_SASL=external there are none to take")
	}
	if u.Scheme == "http" && !loopbackHost(u.Hostname()) {
		l.warn(managementURL, "the password is sent unencrypted and leaves this machine: use https")
	}
}

// management returns the URL of the management API; nil if there is none, or a wrong one.
func (l *loader) management() *url.URL {
	raw, _ := l.cfg.AMQP.ManagementURL.Value() // with an error comes the last good value
	if raw == "" || !l.ok(managementURL) {
		return nil
	}
	u, _ := parseManagementURL(raw)
	return u
}

// managementTLS reports whether the management API is reached with TLS.
func (l *loader) managementTLS() bool {
	u := l.management()
	return u != nil && u.Scheme == "https"
}
