package admin

import (
	"net/http"
	"strings"
	"time"
)

const (
	// drainAppears is how long /drained waits for a drain to begin.
	drainAppears = 3 * time.Second
	// hookAppears is the same for the hook of a container in a pod that ends. All hooks start together, but the one that
	// drains is a process that has to be started in the sidecar's container: on a node without a free CPU that has taken
	// more than 3 s, and an app that is told to stop before loses what it has in its hands. A hook also runs when only
	// the app's own liveness probe failed; then no drain will come, and this is how much later the app is restarted.
	hookAppears = 10 * time.Second
	// hookAgent begins the User-Agent of the hooks that a kubelet runs.
	hookAgent = "kube-lifecycle/"
	// drainMargin is for settling after the grace.
	drainMargin = 10 * time.Second
)

// drained answers when nothing is left in flight, or at once when nothing is draining.
func (s *Server) drained(w http.ResponseWriter, r *http.Request) {
	appears := drainAppears
	if strings.HasPrefix(r.UserAgent(), hookAgent) {
		appears = hookAppears
	}
	bound := appears + s.o.Grace + drainMargin
	c := http.NewResponseController(w)
	// The listener's own bounds are for requests that do not wait. Where deadlines are not supported there are none.
	_ = c.SetReadDeadline(time.Now().Add(bound + requestTimeout))
	_ = c.SetWriteDeadline(time.Now().Add(bound + requestTimeout))

	if !s.wait(r, s.o.State.Draining(), appears) {
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
