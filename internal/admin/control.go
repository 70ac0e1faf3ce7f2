package admin

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"time"
)

// controlRoutes is all that the control listener has, behind guard.
func (s *Server) controlRoutes() http.Handler {
	t := routes{
		"/status": get(s.status),
		"/drain":  post(s.change("drain", s.drain)),
		"/pause":  post(s.change("pause", s.pause)),
		"/resume": post(s.change("resume", s.resume)),
	}
	return s.busy.limit(t.ServeHTTP)
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, s.o.State.Status())
}

// drainBegins is how long the answer to POST /drain waits to be able to say "draining".
const drainBegins = time.Second

func (s *Server) drain(r *http.Request) int {
	s.o.State.Drain()
	s.wait(r, s.o.State.Draining(), drainBegins)
	return http.StatusAccepted
}

func (s *Server) pause(*http.Request) int {
	if s.isDraining() {
		return http.StatusConflict
	}
	s.o.State.Pause()
	return http.StatusOK
}

func (s *Server) resume(*http.Request) int {
	if s.isDraining() {
		return http.StatusConflict
	}
	s.o.State.Resume()
	return http.StatusOK
}

// change wraps what changes something: its body is checked first, the change is written down with who asked for it,
// and the answer is the state it led to.
func (s *Server) change(action string, do func(*http.Request) int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if status, detail := checkEmpty(w, r); status != 0 {
			refuse(w, status, detail)
			return
		}
		status := do(r)
		// The peer's address, not X-Forwarded-For: anybody can write that.
		s.o.Logger.Info("control", "action", action, "peer", r.RemoteAddr, "status", status)
		if status == http.StatusConflict {
			refuse(w, status, "The sidecar is draining and will take no more messages.")
			return
		}
		answer(w, status, s.o.State.Status())
	}
}

func (s *Server) isDraining() bool {
	select {
	case <-s.o.State.Draining():
		return true
	default:
		return false
	}
}

// checkEmpty reads the body, which may be nothing or an empty JSON object: a field that is not understood must not be
// taken for understood. It returns 0 when the body is fine.
func checkEmpty(w http.ResponseWriter, r *http.Request) (status int, detail string) {
	b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	b = bytes.Trim(b, jsonSpace)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return http.StatusRequestEntityTooLarge, "The body is larger than 1 MiB."
	case err != nil:
		return http.StatusBadRequest, "The body ended early."
	case len(b) > 0 && !emptyObject(b):
		return http.StatusBadRequest, "The body must be empty or {}."
	}
	return 0, ""
}

// jsonSpace is white space in JSON; what Go takes for space is more.
const jsonSpace = " \t\r\n"

func emptyObject(b []byte) bool {
	return len(b) >= 2 && b[0] == '{' && b[len(b)-1] == '}' && len(bytes.Trim(b[1:len(b)-1], jsonSpace)) == 0
}
