package admin

import (
	"net/http"
	"slices"
	"strings"
)

// routes maps an exact path to its handlers by method. It is no http.ServeMux because that cleans and redirects:
// here a path that is not spelled as in the table does not exist.
type routes map[string]map[string]http.HandlerFunc

func (t routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The escaped form: "/%64rain" must not be "/drain".
	byMethod := t[r.URL.EscapedPath()]
	if byMethod == nil {
		refuse(w, http.StatusNotFound, "")
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h := byMethod[method]
	if h == nil {
		w.Header().Set("Allow", allowed(byMethod))
		refuse(w, http.StatusMethodNotAllowed, "")
		return
	}
	h(w, r)
}

func allowed(byMethod map[string]http.HandlerFunc) string {
	var names []string
	for m := range byMethod {
		names = append(names, m)
		if m == http.MethodGet {
			names = append(names, http.MethodHead)
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func get(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{http.MethodGet: h}
}

func post(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{http.MethodPost: h}
}
