package admin

import (
	"embed"
	"io"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
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
		"/status": httpguard.Get(show(s.o.State.Status)),
		"/drain":  httpguard.Post(s.change("drain", s.drain)),
		"/pause":  httpguard.Post(s.change("pause", s.unlessDraining(s.o.State.Pause))),
		"/resume": httpguard.Post(s.change("resume", s.unlessDraining(s.o.State.Resume))),

		"/topology":     httpguard.Get(show(s.topology)),
		"/openapi.json": httpguard.Get(openAPI),
		"/events":       httpguard.Get(s.streams.Limit(s.events)),
	}
	maps.Copy(t, s.o.DeadLetters.Routes())
	return t
}

func show[T any](what func() T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { httpguard.Answer(w, http.StatusOK, what()) }
}

// topology returns one topology, or a list of them where subscriptions have names.
func (s *Server) topology() any {
	if all := s.o.Topologies; all[0].Subscription != "" {
		return map[string][]Topology{"subscriptions": all}
	}
	return s.o.Topologies[0]
}

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, openAPIDocument) // only a client that is gone can fail this
}

// drainBegins is how long the answer to POST /drain waits to be able to say "draining".
const drainBegins = time.Second

func (s *Server) drain(r *http.Request, subscription string) (status int, refusal string) {
	if subscription != "" {
		return http.StatusBadRequest,
			"A drain ends all subscriptions. POST /pause?subscription=" + subscription + " stops one."
	}
	s.o.State.Drain()
	s.wait(r, s.o.State.Draining(), drainBegins)
	return http.StatusAccepted, ""
}

func (s *Server) unlessDraining(do func(subscription string)) func(*http.Request, string) (int, string) {
	return func(_ *http.Request, subscription string) (int, string) {
		if Closed(s.o.State.Draining()) {
			return http.StatusConflict, "The sidecar is draining and will take no more messages."
		}
		do(subscription)
		return http.StatusOK, ""
	}
}

// change wraps what changes something, of one subscription or of all: its request is checked first, the change is
// written down with who asked for it, and the answer is the state it led to.
func (s *Server) change(action string, do func(*http.Request, string) (status int, refusal string)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		name, status, detail := s.subscription(r, true)
		if status == 0 {
			status, detail = httpguard.CheckEmpty(r)
		}
		if status != 0 {
			httpguard.Refuse(w, status, "", detail)
			return
		}
		var more []any
		if name != "" {
			more = []any{"subscription", name}
		}
		status, refusal := do(r, name)
		httpguard.Audit(s.o.Logger, r, action, status, more...)
		if refusal != "" {
			httpguard.Refuse(w, status, "", refusal)
			return
		}
		httpguard.Answer(w, status, s.o.State.Status())
	}
}

//go:embed console
var embedded embed.FS

// contentTypes are those of the console's files, by the ends of their names.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// consoleFiles are the embedded files of the console by their paths: the page at /, what it begins with at /console.css
// and /console.js, the rest below /console/.
func consoleFiles() map[string]string {
	files := map[string]string{}
	entries, _ := embedded.ReadDir("console") // what is embedded is there
	for _, e := range entries {
		at := "/console/" + e.Name()
		switch {
		case e.Name() == "index.html":
			at = "/"
		case strings.HasPrefix(e.Name(), "console."):
			at = "/" + e.Name()
		}
		files[at] = "console/" + e.Name()
	}
	return files
}

// consolePolicy lets the page load what is its own, and nothing else, and lets no other page frame it.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' " +
	"data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// console serves the file at the path as it is written, and reports whether there is one. The files are the same for
// all clients and hold no data, so they need no token: the page has to be there before it can ask for one. Hardly any
// process is ever asked for them, so nothing is kept in memory.
func (s *Server) console(w http.ResponseWriter, r *http.Request) bool {
	name, found := s.files[r.URL.EscapedPath()]
	if !found || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	h := w.Header()
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", contentTypes[path.Ext(name)])
	body, _ := embedded.ReadFile(name)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // only a client that is gone can fail this; net/http leaves it out for HEAD
	return true
}
