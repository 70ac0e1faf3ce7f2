package admin

import (
	"context"
	"net/http"

	"sidecar/internal/httpguard"
)

// scope is what a caller of the control listener may do.
type scope uint8

const (
	nobody scope = iota // nothing but the console's files
	reader              // sees everything but message bodies, and changes nothing
	writer              // everything
)

// String is the scope as the log calls it.
func (s scope) String() string { return [...]string{"none", "read", "write"}[s] }

// scopeOf looks at the token of a request. Without tokens, which only a loopback address allows, everybody may do
// everything.
func (s *Server) scopeOf(r *http.Request) scope {
	if s.o.Token == nil {
		return writer
	}
	// Both are compared whatever the first comparison says.
	reads, writes := s.o.ReadToken != nil && httpguard.HasToken(r, s.o.ReadToken()), httpguard.HasToken(r, s.o.Token())
	switch {
	case reads: // also when a rotation has made both the same: a right too few is noticed, one too many is not
		return reader
	case writes:
		return writer
	}
	return nobody
}

type scopeKey struct{}

func withScope(r *http.Request, s scope) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), scopeKey{}, s))
}

// callerScope is what guard has found out.
func callerScope(r *http.Request) scope {
	s, _ := r.Context().Value(scopeKey{}).(scope)
	return s
}
