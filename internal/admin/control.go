package admin

import (
	"bytes"
	"maps"
	"net/http"
	"time"
)

// controlRoutes is all that the control listener has behind guard, beside the console.
func (s *Server) controlRoutes() routes {
	t := routes{
		"/status": get(s.status),
		"/drain":  post(s.change("drain", s.drain)),
		"/pause":  post(s.change("pause", s.pause)),
		"/resume": post(s.change("resume", s.resume)),

		"/topology":     get(s.topology),
		"/openapi.json": get(openAPI),
		"/events":       get(s.streams.limit(s.events)),
	}
	maps.Copy(t, s.deadLetterRoutes())
	return t
}

func (s *Server) topology(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, s.o.Topology)
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
		s.audit(r, action, status)
		if status == http.StatusConflict {
			refuse(w, status, "The sidecar is draining and will take no more messages.")
			return
		}
		answer(w, status, s.o.State.Status())
	}
}

// audit writes down who has done what. The peer's address, not X-Forwarded-For: anybody can write that.
func (s *Server) audit(r *http.Request, action string, status int, more ...any) {
	s.o.Logger.Info("control", append([]any{
		"action", action, "peer", r.RemoteAddr, "scope", callerScope(r).String(), "status", status,
	}, more...)...)
}

func (s *Server) isDraining() bool { return closed(s.o.State.Draining()) }

// checkEmpty reads the body, which may be nothing or an empty JSON object: a field that is not understood must not be
// taken for understood. It returns 0 when the body is fine.
func checkEmpty(w http.ResponseWriter, r *http.Request) (status int, detail string) {
	b, status, detail := readBody(w, r)
	if b = bytes.Trim(b, jsonSpace); status == 0 && len(b) > 0 && !emptyObject(b) {
		return http.StatusBadRequest, "The body must be empty or {}."
	}
	return status, detail
}

// jsonSpace is white space in JSON; what Go takes for space is more.
const jsonSpace = " \t\r\n"

func emptyObject(b []byte) bool {
	return len(b) >= 2 && b[0] == '{' && b[len(b)-1] == '}' && len(bytes.Trim(b[1:len(b)-1], jsonSpace)) == 0
}
