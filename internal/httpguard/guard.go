// Package httpguard checks requests to every listener that can change something, before their paths are routed: where a
// request comes from and whether its sender has the token. A web page in a user's browser can reach loopback too: by a
// name of its own that resolves to 127.0.0.1 (Host), or across origins (Origin, Sec-Fetch-Site). It also writes the
// refusals of such a listener, RFC 9457 problem documents. It does not act on a request that it lets pass, does not
// know what a path means, and does not read configuration.
package httpguard

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// Hosts decides which Host headers a listener answers to. A page that rebinds its own name to our address
// still sends that name, so names are refused unless they are known. Off loopback, where any name may be right, the
// token takes over: a rebound page does not have it.
type Hosts struct {
	bound netip.Addr // the listener's address
	name  string     // the configured host, lower case
	token bool       // is asked for
}

// NewHosts is for a listener that was configured as host:port and is bound to an address. token says that every request
// needs one.
func NewHosts(configured string, bound net.Addr, token bool) Hosts {
	h := Hosts{token: token}
	if t, ok := bound.(*net.TCPAddr); ok {
		h.bound = t.AddrPort().Addr().Unmap().WithZone("")
	}
	if name, _, err := net.SplitHostPort(configured); err == nil {
		h.name = strings.ToLower(name)
	}
	return h
}

// Loopback reports whether only this machine reaches the listener.
func (h Hosts) Loopback() bool { return h.bound.IsLoopback() }

// Allow checks a Host header. Its port is not compared: a port-forward has another one.
func (h Hosts) Allow(host string) bool {
	u, err := url.Parse("//" + host)
	if err != nil || u.Host != host || u.Hostname() == "" {
		return false
	}
	name := strings.ToLower(u.Hostname())
	if h.token && !h.Loopback() || name == "localhost" || name == h.name {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil {
		return false
	}
	ip = ip.Unmap()
	return ip.IsLoopback() || ip == h.bound
}

// CheckOrigin checks where a request comes from. It returns 0 for one that may go on.
func (h Hosts) CheckOrigin(r *http.Request) (status int, detail string) {
	switch {
	case !h.Allow(r.Host):
		return http.StatusMisdirectedRequest, "The Host header names another server."
	case h.crossSite(r):
		return http.StatusForbidden, "Requests from other sites are refused."
	case overridesMethod(r):
		return http.StatusBadRequest, "Method override headers are refused."
	}
	return 0, ""
}

// crossSite reports whether a web page of another site sent the request. It checks every method, reads included: their
// answers are not for other sites either. The listener speaks plain HTTP, so its own pages have that scheme. Behind a
// proxy with TLS, which needs a listener off loopback, they have the scheme that the proxy reports: no page of another
// site can add that header to a request without asking first, and that question is refused.
func (h Hosts) crossSite(r *http.Request) bool {
	for _, v := range r.Header["Sec-Fetch-Site"] {
		if v != "same-origin" && v != "none" {
			return true
		}
	}
	origins := r.Header["Origin"]
	if len(origins) == 0 {
		return false
	}
	own := "http://" + strings.TrimSuffix(r.Host, ":80") // an origin does not have the default port of its scheme
	if !h.Loopback() && r.Header.Get("X-Forwarded-Proto") == "https" {
		own = "https://" + strings.TrimSuffix(r.Host, ":443")
	}
	return len(origins) > 1 || !strings.EqualFold(origins[0], own)
}

// overridesMethod reports whether the request asks to be taken for one of another method.
func overridesMethod(r *http.Request) bool {
	for _, name := range []string{"X-Http-Method-Override", "X-Http-Method", "X-Method-Override"} {
		if r.Header.Get(name) != "" {
			return true
		}
	}
	return false
}

// HasToken reports whether the request carries exactly this bearer token; an empty token matches no request. It
// compares digests: of equal length, whatever was sent, so the time taken reveals nothing about the token.
func HasToken(r *http.Request, want string) bool {
	values := r.Header["Authorization"]
	if want == "" || len(values) != 1 {
		return false
	}
	scheme, got, _ := strings.Cut(values[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// Scope is what a caller of the control listener may do.
type Scope uint8

// The scopes.
const (
	NoAccess Scope = iota // nothing but the console's files
	Reader                // sees everything but message bodies, and changes nothing
	Writer                // everything
)

// String is the scope as the log calls it.
func (s Scope) String() string { return [...]string{"none", "read", "write"}[s] }

type scopeKey struct{}

// WithScope is r with the scope of its caller.
func WithScope(r *http.Request, s Scope) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), scopeKey{}, s))
}

// CallerScope is the scope that WithScope gave r.
func CallerScope(r *http.Request) Scope {
	s, _ := r.Context().Value(scopeKey{}).(Scope)
	return s
}

// Audit logs who did what. The peer's address, not X-Forwarded-For: any client can write that.
func Audit(log *slog.Logger, r *http.Request, action string, status int, more ...any) {
	log.Info("control", append([]any{
		"action", action, "peer", r.RemoteAddr, "scope", CallerScope(r).String(), "status", status,
	}, more...)...)
}
