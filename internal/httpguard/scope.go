package httpguard

import (
	"context"
	"log/slog"
	"net/http"
)

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
