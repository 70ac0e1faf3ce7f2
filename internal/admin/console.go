package admin

import (
	"net/http"
	"strconv"
)

// Static is a file of the console. It is the same for everybody and holds no data, so it needs no token: the page has
// to be there before it can ask for one.
type Static struct {
	ContentType string
	Read        func() []byte // hardly any process of ours is ever asked for it: nothing is kept
}

// consolePolicy lets the page load what is its own, and nothing else, and lets no other page frame it.
const consolePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' " +
	"data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// console serves the file at the path as it is written, and reports whether there is one.
func (s *Server) console(w http.ResponseWriter, r *http.Request) bool {
	f, found := s.o.Console[r.URL.EscapedPath()]
	if !found || r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	h := w.Header()
	h.Set("Content-Security-Policy", consolePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", f.ContentType)
	body := f.Read()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // only a client that is gone can fail this; net/http leaves it out for HEAD
	return true
}
