package admin

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"runtime/debug"
	"time"

	"sidecar/internal/httpguard"
)

// common is what both listeners do for every request, before its path is routed.
func (s *Server) common(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { // a bug in one answer is no more than a failed answer, and its trace is in our log
			v := recover()
			if err, _ := v.(error); errors.Is(err, http.ErrAbortHandler) { // so that the client has a broken answer
				panic(v)
			}
			if v != nil {
				s.o.Logger.Error("admin panic", "panic", v, "stack", string(debug.Stack()))
				httpguard.Refuse(w, http.StatusInternalServerError, "", "")
			}
		}()
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		h.Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		// No client of ours sends a chunked body. Refusing them all, and the connection with them, leaves nothing for
		// a proxy and this server to disagree about where a request ends.
		if len(r.TransferEncoding) > 0 {
			h.Set("Connection", "close")
			httpguard.Refuse(w, http.StatusLengthRequired, "", "A body needs a Content-Length.")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// guard checks every request to the control listener, for known and unknown paths. A web page in the operator's browser
// can reach loopback too: by a name of its own that resolves to 127.0.0.1 (Host), or across origins (Origin,
// Sec-Fetch-Site, the content types a form can send).
//
// An accepted request carries its scope. A read token is for GET and HEAD alone: no path that changes something is a
// GET.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var may httpguard.Scope
		status, detail := s.control.Hosts.CheckOrigin(r)
		if status == 0 {
			if s.console(w, r) {
				return
			}
			may = s.scopeOf(r)
			status, detail = checkRequest(r, may)
		}
		if status == 0 {
			next.ServeHTTP(w, httpguard.WithScope(r, may))
			return
		}
		s.refusals.Do(func(suppressed int) {
			s.o.Logger.Warn("control refused", "peer", r.RemoteAddr, "status", status, "reason", detail,
				"suppressed", suppressed)
		})
		// Without this the server would read a refused body, however slowly it comes, before it answers.
		w.Header().Set("Connection", "close")
		switch status {
		case http.StatusUnauthorized:
			w.Header().Set("WWW-Authenticate", "Bearer")
		case http.StatusMethodNotAllowed:
			w.Header().Set("Allow", "GET, HEAD, POST")
		}
		httpguard.Refuse(w, status, "", detail)
	})
}

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

// checkRequest checks the form of a request and its token. It returns 0 for one that may go on.
func checkRequest(r *http.Request, may httpguard.Scope) (status int, detail string) {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead && r.Method != http.MethodPost:
		return http.StatusMethodNotAllowed, ""
	case may == httpguard.NoAccess:
		return http.StatusUnauthorized, "A valid bearer token is required."
	case may != httpguard.Writer && r.Method == http.MethodPost:
		return http.StatusForbidden, "This token may only read."
	case r.ContentLength > httpguard.MaxBody:
		return http.StatusRequestEntityTooLarge, "The body is larger than 1 MiB."
	case !isJSON(r):
		return http.StatusUnsupportedMediaType, "A body must be application/json. Messages are published at " +
			"SIDECAR_PUBLISH_ADDR, not here."
	}
	return 0, ""
}

// isJSON lets nothing through that a form or a simple cross-origin request could send. No body needs no type.
func isJSON(r *http.Request) bool {
	values := r.Header["Content-Type"]
	if len(values) == 0 {
		return r.ContentLength == 0
	}
	t, _, err := mime.ParseMediaType(values[0])
	return err == nil && len(values) == 1 && t == "application/json"
}

// receive reads the body of a request before anything else is done for it, so that a slow one holds no more than its
// connection, which may be closed to make room for others.
func (s *Server) receive(next http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength > 0 { // at most httpguard.MaxBody, and never unknown
			if !s.o.Memory.Take(r.ContentLength) {
				w.Header().Set("Connection", "close")
				w.Header().Set("Retry-After", "1")
				httpguard.Refuse(w, http.StatusServiceUnavailable, "", "No memory is free for the body of the request.")
				return
			}
			defer s.o.Memory.Give(r.ContentLength)
			c := http.NewResponseController(w)
			_ = c.SetReadDeadline(time.Now().Add(bodyTimeout))
			b, err := io.ReadAll(r.Body)
			if err != nil {
				// Of a body that was too slow the time to answer is over as well.
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				httpguard.Refuse(w, http.StatusBadRequest, "", "The body ended early.")
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(b))
		}
		httpguard.Received(r)
		next.ServeHTTP(w, r)
	}
}
