package admin

import (
	"embed"
	"net/http"
	"path"
	"strconv"
	"strings"
)

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
// everybody and hold no data, so they need no token: the page has to be there before it can ask for one. Hardly any
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
