package config

import (
	"errors"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// parseURL parses raw, which must begin with one of the schemes and name a host. No error repeats any part of raw; the
// errors of net/url do, so they are dropped. hint is added where a reserved character may have cut raw in the wrong
// place.
func parseURL(raw, hint string, schemes ...string) (*url.URL, error) {
	if scheme, _, found := strings.Cut(raw, "://"); !found || !slices.Contains(schemes, scheme) {
		last := len(schemes) - 1
		return nil, errors.New("must start with " + strings.Join(schemes[:last], "://, ") + ":// or " + schemes[last] + "://")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return nil, errors.New("is not a URL" + hint)
	case u.Hostname() == "":
		return nil, errors.New("names no host")
	case !validHost(u.Hostname()):
		return nil, errors.New("has an invalid host" + hint)
	case strings.HasSuffix(u.Host, ":") || u.Port() != "":
		err = checkPort(u.Port())
	}
	return u, err
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has a port outside 1 to 65535")
	}
	return nil
}

var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?$`)

// validHost accepts IP addresses and names. A name whose last label is a number is refused unless it is an address:
// resolvers read 2852039166 or 0xa9fea9fe as one, and no check would recognise it.
func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	if len(host) > 255 || !hostName.MatchString(host) || strings.Contains(host, "..") {
		return false
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	_, err := strconv.ParseUint(labels[len(labels)-1], 0, 64)
	return err != nil
}

func loopbackHost(host string) bool {
	a, err := netip.ParseAddr(host)
	return strings.EqualFold(host, "localhost") || err == nil && a.Unmap().IsLoopback()
}

// maxSocketPath is what fits into a Unix socket address on Linux, in bytes.
const maxSocketPath = 107

// parseAppURL returns nothing but the scheme of a Unix socket's URL.
func parseAppURL(raw string) (*url.URL, error) {
	if err := checkURLChars(raw); err != nil {
		return nil, err
	}
	if rest, found := strings.CutPrefix(raw, "unix://"); found {
		return &url.URL{Scheme: "unix"}, checkSocketURL(rest)
	}
	u, err := parseURL(raw, "", "http", "https", "unix")
	if err != nil {
		return nil, err
	}
	if u.User != nil {
		return nil, errors.New("holds a user: use SIDECAR_APP_TOKEN to prove who calls")
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && a.Unmap().IsLinkLocalUnicast() {
		return nil, errors.New("link-local addresses are refused: that is where clouds hand out credentials")
	}
	return u, checkPathSegments(u.EscapedPath())
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
var checkHTTPPath = inTurn(
	checkURLChars,
	require(func(path string) bool { return strings.HasPrefix(path, "/") }, "must start with '/'"),
	require(func(path string) bool {
		_, err := url.ParseRequestURI(path)
		return err == nil
	}, "is not a path"),
	func(path string) error {
		path, _, _ = strings.Cut(path, "?")
		return checkPathSegments(path)
	},
)

// checkURLChars refuses characters that could end a request line or would have to be rewritten in one.
var checkURLChars = inTurn(
	require(func(v string) bool { return !strings.Contains(v, "#") }, "holds a fragment, which is never sent"),
	require(func(v string) bool { return visibleASCII(v) && !strings.ContainsAny(v, "\"<>\\^`{|}") },
		"holds a character that must be percent-encoded"),
	require(func(v string) bool { return !encodedBreak.MatchString(v) }, "holds an encoded NUL or line break"),
)

var encodedBreak = regexp.MustCompile(`(?i)%0[0ad]`)

// visibleASCII reports whether v has no space, no control character and no byte outside ASCII.
func visibleASCII(v string) bool {
	return !strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r >= 0x7f })
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
