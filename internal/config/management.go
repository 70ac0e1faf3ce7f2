package config

import (
	"cmp"
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
	case strings.Contains(u.EscapedPath(), "@"):
		return nil, errors.New("has a '@' in the path" + hint)
	}
	if password, _ := u.User.Password(); u.User != nil && (u.User.Username() == "" || password == "") {
		return nil, errors.New("needs both a user and a password, or neither")
	}
	return u, checkPathSegments(u.EscapedPath())
}

// Management returns the URL of the management API without its user, and the user and password to use there: those of
// the URL, else those of AMQP. All are empty without SIDECAR_MANAGEMENT_URL.
func (a *AMQP) Management() (address, user, password string, err error) {
	raw, err := a.ManagementURL.Value()
	if raw == "" || err != nil {
		return "", "", "", err
	}
	u, _ := parseManagementURL(raw) // checked when it was read
	login := u.User
	if login == nil {
		if login, err = a.login(); err != nil {
			return "", "", "", err
		}
	}
	u.User = nil
	password, _ = login.Password()
	return u.String(), login.Username(), password, nil
}

// login returns the user and password of AMQP, with the first URL.
func (a *AMQP) login() (*url.Userinfo, error) {
	urls, err := a.URLs()
	if err != nil {
		return nil, err
	}
	first, _ := parseAMQPURL(urls[0]) // checked when it was read
	// Without a user the client library takes this one.
	user := cmp.Or(first.User, url.UserPassword("guest", "guest"))
	password, _ := user.Password()
	name, err := a.Username.Value()
	if err != nil {
		return nil, err
	}
	secret, err := a.Password.Value()
	return url.UserPassword(cmp.Or(name, user.Username()), cmp.Or(secret, password)), err
}

// checkManagement judges the URL together with the settings of AMQP, which it takes its user from.
func (l *loader) checkManagement() {
	u := l.management()
	if u == nil {
		return
	}
	if u.User == nil && l.cfg.AMQP.External() {
		l.reject(managementURL, "needs a user and a password: AMQP has none to take, its user is that of the "+
			"client certificate")
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
