package config

import (
	"errors"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

const schemeUnix = "unix"

// maxSocketPath is what fits into a Unix socket address on Linux, in bytes.
const maxSocketPath = 107

var (
	errToken     = errors.New("holds a space, a control character or a character outside ASCII")
	errURLChars  = errors.New("holds a character that must be percent-encoded")
	errLinkLocal = errors.New("link-local addresses are refused: that is where clouds hand out credentials")
)

// appTarget is the part of an app URL that the checks need.
type appTarget struct {
	scheme, host string
	port         int
}

func (t appTarget) local() bool { return t.scheme == schemeUnix || loopbackHost(t.host) }

func parseAppURL(raw string) (appTarget, error) {
	if err := checkURLChars(raw); err != nil {
		return appTarget{}, err
	}
	if rest, found := strings.CutPrefix(raw, "unix://"); found {
		return appTarget{scheme: schemeUnix}, checkSocketURL(rest)
	}
	scheme, _, found := strings.Cut(raw, "://")
	if !found || (scheme != "http" && scheme != "https") {
		return appTarget{}, errors.New("must start with http://, https:// or unix://")
	}
	u, err := url.Parse(raw)
	if err != nil { // its text repeats the URL
		return appTarget{}, errors.New("is not a URL")
	}
	if u.User != nil {
		return appTarget{}, errors.New("holds a user: use SIDECAR_APP_TOKEN to prove who calls")
	}
	t := appTarget{scheme: scheme, host: u.Hostname(), port: 80}
	if scheme == "https" {
		t.port = 443
	}
	if err := checkAppHost(u.Hostname()); err != nil {
		return appTarget{}, err
	}
	if strings.HasSuffix(u.Host, ":") || u.Port() != "" {
		if err := checkPort(u.Port()); err != nil {
			return appTarget{}, err
		}
		t.port, _ = strconv.Atoi(u.Port())
	}
	if u.EscapedPath() == "" {
		return t, nil
	}
	return t, checkPathSegments(u.EscapedPath())
}

func checkAppHost(host string) error {
	if host == "" {
		return errors.New("names no host")
	}
	if !validHost(host) {
		return errors.New("has an invalid host")
	}
	if a, err := netip.ParseAddr(host); err == nil && a.Unmap().IsLinkLocalUnicast() {
		return errLinkLocal
	}
	return nil
}

// checkSocketURL reads what follows unix://, an absolute file path and, behind a colon, the HTTP path.
func checkSocketURL(rest string) error {
	file, path, found := strings.Cut(rest, ":")
	switch {
	case !strings.HasPrefix(file, "/") || len(file) < 2:
		return errors.New("must give the socket as an absolute path: unix:///path/to.sock")
	case len(file) > maxSocketPath:
		return errors.New("has a socket path longer than 107 bytes")
	case strings.ContainsAny(file, "?%"):
		return errors.New("has a '?' or '%' in the socket path, which is not decoded")
	case !found:
		return nil
	}
	return checkHTTPPath(path)
}

// checkHTTPPath checks a path with an optional query, as it will be in the request line.
func checkHTTPPath(path string) error {
	if err := checkURLChars(path); err != nil {
		return err
	}
	if !strings.HasPrefix(path, "/") {
		return errors.New("must start with '/'")
	}
	if _, err := url.ParseRequestURI(path); err != nil {
		return errors.New("is not a path")
	}
	path, _, _ = strings.Cut(path, "?")
	return checkPathSegments(path)
}

// checkURLChars refuses characters that could end a request line or would have to be rewritten in one.
func checkURLChars(v string) error {
	if strings.Contains(v, "#") {
		return errors.New("holds a fragment, which is never sent")
	}
	for _, b := range []byte(v) {
		if b <= ' ' || b >= 0x7f || strings.IndexByte("\"<>\\^`{|}", b) >= 0 {
			return errURLChars
		}
	}
	lower := strings.ToLower(v)
	for _, encoded := range []string{"%00", "%0a", "%0d"} {
		if strings.Contains(lower, encoded) {
			return errors.New("holds an encoded NUL or line break")
		}
	}
	return nil
}

func checkPathSegments(path string) error {
	if strings.HasPrefix(path, "//") {
		return errors.New("has a path starting with '//', which reads as a host")
	}
	for segment := range strings.SplitSeq(path, "/") {
		plain := strings.ReplaceAll(strings.ToLower(segment), "%2e", ".")
		if plain == "." || plain == ".." {
			return errors.New("has a path with '.' or '..'")
		}
	}
	return nil
}
