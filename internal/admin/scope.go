package admin

import (
	"net/http"

	"sidecar/internal/httpguard"
)

// scopeOf checks the token of a request. Without tokens, which only a loopback address allows, every request may do
// everything.
func (s *Server) scopeOf(r *http.Request) httpguard.Scope {
	if s.o.Token == nil {
		return httpguard.Writer
	}
	// Both are compared, whatever the result of the first comparison.
	reads, writes := s.o.ReadToken != nil && httpguard.HasToken(r, s.o.ReadToken()), httpguard.HasToken(r, s.o.Token())
	switch {
	case reads: // also when a rotation has made both the same: a right too few is noticed, one too many is not
		return httpguard.Reader
	case writes:
		return httpguard.Writer
	}
	return httpguard.NoAccess
}
