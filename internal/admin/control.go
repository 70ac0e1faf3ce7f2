package admin

import (
	_ "embed"
	"io"
	"maps"
	"net/http"
	"time"

	"sidecar/internal/httpguard"
)

// openAPIDocument describes the control listener. The tests check every request and every answer of theirs against it.
//
//go:embed openapi.json
var openAPIDocument string

// controlRoutes is all that the control listener has behind guard, beside the console.
func (s *Server) controlRoutes() httpguard.Routes {
	t := httpguard.Routes{
		"/status": httpguard.Get(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.o.State.Status()) }),
		"/drain":  httpguard.Post(s.change("drain", s.drain)),
		"/pause":  httpguard.Post(s.change("pause", s.unlessDraining(s.o.State.Pause))),
		"/resume": httpguard.Post(s.change("resume", s.unlessDraining(s.o.State.Resume))),

		"/topology":     httpguard.Get(func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, s.o.Topology) }),
		"/openapi.json": httpguard.Get(openAPI),
		"/events":       httpguard.Get(s.streams.Limit(s.events)),
	}
	maps.Copy(t, s.o.DeadLetters.Routes())
	return t
}

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, openAPIDocument) // only a client that is gone can fail this
}

// drainBegins is how long the answer to POST /drain waits to be able to say "draining".
const drainBegins = time.Second

func (s *Server) drain(r *http.Request) int {
	s.o.State.Drain()
	s.wait(r, s.o.State.Draining(), drainBegins)
	return http.StatusAccepted
}

func (s *Server) unlessDraining(do func()) func(*http.Request) int {
	return func(*http.Request) int {
		if closed(s.o.State.Draining()) {
			return http.StatusConflict
		}
		do()
		return http.StatusOK
	}
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
		httpguard.Audit(s.o.Logger, r, action, status)
		if status == http.StatusConflict {
			refuse(w, status, "The sidecar is draining and will take no more messages.")
			return
		}
		answer(w, status, s.o.State.Status())
	}
}
