package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// endpoint is the part of one AMQP URL that the checks need.
type endpoint struct {
	tls        bool
	host, user string
}

// splitURLs splits at commas and drops blanks around the items. An empty item stays in: it is an error.
func splitURLs(list string) []string {
	urls := strings.Split(list, ",")
	for i, u := range urls {
		urls[i] = strings.Trim(u, " \t")
	}
	return urls
}

func checkAMQPURLs(list string) error {
	urls := splitURLs(list)
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

// parseAMQPURL is stricter than the client library, which would let query parameters override our settings (a heartbeat
// of 0 there even turns heartbeats off).
//
// No error repeats any part of the URL, and the errors of net/url, which do, are dropped: a password with a reserved
// character in it is cut in the wrong place, so the apparent port, path or query may be half a password. For the same
// reason a raw '@' behind the host is refused.
func parseAMQPURL(raw string) (endpoint, error) {
	if raw == "" {
		return endpoint{}, errors.New("is empty")
	}
	if strings.ContainsFunc(raw, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return endpoint{}, errors.New("holds a space or a control character")
	}
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || (scheme != "amqp" && scheme != "amqps") {
		return endpoint{}, errors.New("must start with amqp:// or amqps://")
	}
	if strings.Contains(rest, "#") {
		return endpoint{}, errors.New("holds a fragment: " + encodeHint)
	}
	u, err := url.Parse(raw)
	if err != nil {
		return endpoint{}, errors.New("is not a URL: " + encodeHint)
	}
	if u.RawQuery != "" || u.ForceQuery {
		return endpoint{}, queryError(u.Query())
	}
	if err := checkAuthority(u); err != nil {
		return endpoint{}, err
	}
	if vhost := strings.TrimPrefix(u.EscapedPath(), "/"); strings.ContainsAny(vhost, "/@") {
		return endpoint{}, errors.New("holds a '/' or '@' in the vhost: write %2f or %40 there; " + encodeHint)
	}
	user := "guest" // what the client library assumes
	if u.User != nil {
		user = u.User.Username()
	}
	return endpoint{tls: scheme == "amqps", host: u.Hostname(), user: user}, nil
}

const encodeHint = "a reserved character in user or password must be percent-encoded, or use SIDECAR_AMQP_USERNAME " +
	"and SIDECAR_AMQP_PASSWORD, which take any"

func checkAuthority(u *url.URL) error {
	if u.Hostname() == "" {
		return errors.New("names no host")
	}
	if !validHost(u.Hostname()) {
		return errors.New("has an invalid host: " + encodeHint)
	}
	if !strings.HasSuffix(u.Host, ":") && u.Port() == "" {
		return nil
	}
	return checkPort(u.Port())
}

func checkPort(port string) error {
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has a port outside 1 to 65535")
	}
	return nil
}

// amqpParameters are the query parameters the client library would read, and what to use instead.
var amqpParameters = map[string]string{
	"heartbeat": "SIDECAR_AMQP_HEARTBEAT", "cacertfile": "SIDECAR_AMQP_TLS_CA_FILE",
	"certfile": "SIDECAR_AMQP_TLS_CERT_FILE",
	"keyfile":  "SIDECAR_AMQP_TLS_KEY_FILE", "server_name_indication": "SIDECAR_AMQP_TLS_SERVER_NAME",
	"auth_mechanism": "SIDECAR_AMQP_SASL",
}

func queryError(q url.Values) error {
	for _, p := range []string{"heartbeat", "cacertfile", "certfile", "keyfile", "server_name_indication",
		"auth_mechanism"} {
		if q.Has(p) {
			return errors.New("has the query parameter " + p + ": use " + amqpParameters[p] + " instead")
		}
	}
	return errors.New("has query parameters, which are not read: " + encodeHint)
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

// redactURLs shows where the URLs lead and hides who goes there.
func redactURLs(list string) string {
	urls := splitURLs(list)
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil {
			return masked
		}
		if u.User != nil {
			urls[i] = u.Scheme + "://" + masked + "@" + u.Host + u.EscapedPath()
		}
	}
	return strings.Join(urls, ",")
}
