package admin

import (
	"maps"
	"net/http"
	"time"

	"sidecar/internal/httpguard"
)

// controlRoutes is all that the control listener has behind guard, beside the console.
func (s *Server) controlRoutes() httpguard.Routes {
	t := httpguard.Routes{
		"/status": httpguard.Get(s.status),
		"/drain":  httpguard.Post(s.change("drain", s.drain)),
		"/pause":  httpguard.Post(s.change("pause", s.pause)),
		"/resume": httpguard.Post(s.change("resume", s.resume)),

		"/topology":     httpguard.Get(s.topology),
		"/openapi.json": httpguard.Get(openAPI),
		"/events":       httpguard.Get(s.streams.Limit(s.events)),
	}
	maps.Copy(t, s.o.DeadLetters.Routes())
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
		if status, detail := httpguard.CheckEmpty(w, r); status != 0 {
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

func (s *Server) audit(r *http.Request, action string, status int, more ...any) {
	httpguard.Audit(s.o.Logger, r, action, status, more...)
}

func (s *Server) isDraining() bool { return closed(s.o.State.Draining()) }
