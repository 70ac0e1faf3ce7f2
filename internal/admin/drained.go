package admin

import (
	"net/http"
	"time"
)

const (
	// drainAppears is how long /drained waits for a drain to begin. In a pod that ends, the hooks of all containers
	// start together, but the one that drains has to be started as a process in the sidecar's container: on a node
	// without a free CPU that has taken more than 3 s, and an app that is told to stop before loses what it has in its
	// hands. A hook also runs when only the app's own liveness probe failed; then no drain will come, and this is how
	// much later the app is restarted.
	drainAppears = 10 * time.Second
	// drainMargin is for settling after the grace.
	drainMargin = 10 * time.Second
)

// drained answers when nothing is left in flight, or at once when nothing is draining.
func (s *Server) drained(w http.ResponseWriter, r *http.Request) {
	bound := drainAppears + s.o.Grace + drainMargin
	c := http.NewResponseController(w)
	// The listener's own bounds are for requests that do not wait. Where deadlines are not supported there are none.
	_ = c.SetReadDeadline(time.Now().Add(bound + requestTimeout))
	_ = c.SetWriteDeadline(time.Now().Add(bound + requestTimeout))

	if !s.wait(r, s.o.State.Draining(), drainAppears) {
		answer(w, http.StatusOK, map[string]string{"state": "not draining"})
		return
	}
	if !s.wait(r, s.o.State.Drained(), s.o.Grace+drainMargin) {
		refuse(w, http.StatusServiceUnavailable, "The drain has not ended.")
		return
	}
	answer(w, http.StatusOK, map[string]string{"state": Drained})
}

// wait reports whether done was closed within d, while the client is there and the server is not stopping.
func (s *Server) wait(r *http.Request, done <-chan struct{}, d time.Duration) bool {
	select {
	case <-done: // even when the server is stopping as well
		return true
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-done:
		return true
	case <-t.C:
	case <-r.Context().Done():
	case <-s.stopping:
	}
	return false
}
