package httpguard

import (
	"net/http"
	"slices"
	"strings"
)

// Routes maps an exact path to its handlers by method. It is not an http.ServeMux because that cleans and redirects:
// here a path that is not spelled as in the table does not exist. The one exception is a segment {id}, which matches an
// identifier of ours, see IsID.
type Routes map[string]map[string]http.HandlerFunc

const idSegment = "{id}"

func (t Routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	byMethod := t.find(r)
	if byMethod == nil {
		Refuse(w, NewProblem(http.StatusNotFound, "", ""))
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	h := byMethod[method]
	if h == nil {
		w.Header().Set("Allow", allowed(byMethod))
		Refuse(w, NewProblem(http.StatusMethodNotAllowed, "", ""))
		return
	}
	h(w, r)
}

// find uses the escaped form of the path: "/%64rain" must not be "/drain". In that form no path has braces.
func (t Routes) find(r *http.Request) map[string]http.HandlerFunc {
	path := r.URL.EscapedPath()
	if byMethod := t[path]; byMethod != nil {
		return byMethod
	}
	segments := strings.Split(path, "/")
	i := slices.IndexFunc(segments, IsID)
	if i < 0 {
		return nil
	}
	r.SetPathValue("id", segments[i])
	segments[i] = idSegment
	return t[strings.Join(segments, "/")]
}

// IsID reports whether s is like a reference to a message or the id of an operation: sixteen hexadecimal digits.
func IsID(s string) bool { return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == "" }

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

// Get is the handler of a path that is read.
func Get(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{http.MethodGet: h}
}

// Post is the handler of a path that is written.
func Post(h http.HandlerFunc) map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{http.MethodPost: h}
}

// Slots bounds how many requests of one kind run at a time; the rest is turned away rather than queued.
type Slots chan struct{}

// Limit is next while a slot is free.
func (c Slots) Limit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case c <- struct{}{}:
			defer func() { <-c }()
			next(w, r)
		default:
			w.Header().Set("Retry-After", "1")
			Refuse(w, NewProblem(http.StatusServiceUnavailable, "", "Too many requests of this kind at once."))
		}
	}
}
