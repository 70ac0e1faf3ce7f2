package admin

import (
	"net/http"
	"runtime/debug"
)

// common is what both listeners do for every request, before its path is routed.
func (s *Server) common(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer s.recoverPanic(w)
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		// No client of ours sends a chunked body. Refusing them all, and the connection with them, leaves nothing for
		// a proxy and this server to disagree about where a request ends.
		if len(r.TransferEncoding) > 0 {
			h.Set("Connection", "close")
			refuse(w, http.StatusLengthRequired, "A body needs a Content-Length.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// recoverPanic keeps a bug in one answer from being more than a failed answer, and keeps its trace in our log.
func (s *Server) recoverPanic(w http.ResponseWriter) {
	if v := recover(); v != nil {
		s.o.Logger.Error("admin panic", "panic", v, "stack", string(debug.Stack()))
		refuse(w, http.StatusInternalServerError, "")
	}
}
