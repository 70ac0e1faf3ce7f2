package httpguard

import (
	"net/http"
	"slices"
	"strings"
)

// Routes maps an exact path to its route. It is not an http.ServeMux, which cleans and redirects: here a path that is
// not spelled as in the table does not exist. The one exception is a segment {id}, which matches what IsID does.
type Routes map[string]Route

// Route is the handler of a path for one method; that of GET is for HEAD, too.
type Route struct {
	Method  string
	Handler http.HandlerFunc
}

// Get is the route of a path that is read.
func Get(h http.HandlerFunc) Route { return Route{http.MethodGet, h} }

// Post is the route of a path that is written.
func Post(h http.HandlerFunc) Route { return Route{http.MethodPost, h} }

const idSegment = "{id}"

func (t Routes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	route, found := t.find(r)
	allowed := []string{route.Method}
	if route.Method == http.MethodGet {
		allowed = append(allowed, http.MethodHead)
	}
	if !found {
		Refuse(w, http.StatusNotFound, "", "There is no such path here. Probes and metrics are at SIDECAR_ADMIN_ADDR, "+
			"control and dead letters at SIDECAR_CONTROL_ADDR, messages are published at SIDECAR_PUBLISH_ADDR.")
	} else if Allows(w, r, "", allowed...) {
		route.Handler(w, r)
	}
}

// Allows reports whether the method is one of these, and otherwise answers with 405.
func Allows(w http.ResponseWriter, r *http.Request, code string, methods ...string) bool {
	if slices.Contains(methods, r.Method) {
		return true
	}
	w.Header().Set("Allow", strings.Join(methods, ", "))
	Refuse(w, http.StatusMethodNotAllowed, code, "The method must be "+strings.Join(methods, " or ")+".")
	return false
}

// find uses the escaped form of the path: "/%64rain" must not be "/drain". In that form no path has braces.
func (t Routes) find(r *http.Request) (route Route, found bool) {
	path := r.URL.EscapedPath()
	if route, found = t[path]; found {
		return route, true
	}
	segments := strings.Split(path, "/")
	i := slices.IndexFunc(segments, IsID)
	if i < 0 {
		return Route{}, false
	}
	r.SetPathValue("id", segments[i])
	segments[i] = idSegment
	route, found = t[strings.Join(segments, "/")]
	return route, found
}

// IsID reports whether s is like a reference to a message or the id of an operation: sixteen hexadecimal digits.
func IsID(s string) bool { return len(s) == 16 && strings.Trim(s, "0123456789abcdef") == "" }

// Slots bounds how many calls of one kind run at once; the others are turned away rather than queued.
type Slots chan struct{}

// Enter takes a slot if one is free.
func (c Slots) Enter() bool {
	select {
	case c <- struct{}{}:
		return true
	default:
		return false
	}
}

// Leave gives a slot back.
func (c Slots) Leave() { <-c }

// Limit is next while a slot is free.
func (c Slots) Limit(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !c.Enter() {
			w.Header().Set("Retry-After", "1")
			Refuse(w, http.StatusServiceUnavailable, "", "Too many requests of this kind at once.")
			return
		}
		defer c.Leave()
		next(w, r)
	}
}
