package admin

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// drainAppears is how long /drained waits for a drain to begin.
	drainAppears = 3 * time.Second
	// hookAppears is the same for the hook of a container in a pod that ends. All hooks start together, but the one that
	// drains is a process that has to be started in the sidecar's container: on a node without a free CPU that has taken
	// more than 3 s, and an app that is asked to stop before loses what it has in its hands. A hook also runs when only
	// the app's own liveness probe failed; then no drain will come, and this is how much later the app is restarted.
	hookAppears = 10 * time.Second
	// hookAgent begins the User-Agent of the hooks that a kubelet runs.
	hookAgent = "kube-lifecycle/"
	// drainMargin is for settling after the grace.
	drainMargin = 10 * time.Second
)

// Bounds of the requests that wait at a time: so many of one address, so that no other one keeps the hooks of the
// kubelet out.
const (
	maxWaitsOfOne = 16  // all hooks of a pod come from the address of its node
	maxWaits      = 128 // half of the connections: the others are for probes
)

// waits counts the requests that wait, by the addresses they come from.
type waits struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// enter reports whether a request from an address may wait.
func (t *waits) enter(address string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == maxWaits || t.of[address] == maxWaitsOfOne {
		return false
	}
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.all++
	t.of[address]++
	return true
}

func (t *waits) leave(address string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all--
	if t.of[address]--; t.of[address] == 0 {
		delete(t.of, address)
	}
}

// drained answers when nothing is left in flight, or at once when nothing is draining, or when too many wait.
func (s *Server) drained(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	if !s.waits.enter(address) {
		s.answerDrained(w, closed(s.o.State.Draining()), closed(s.o.State.Drained()))
		return
	}
	defer s.waits.leave(address)
	appears := drainAppears
	if strings.HasPrefix(r.UserAgent(), hookAgent) {
		appears = hookAppears
	}
	bound := appears + s.o.Grace + drainMargin
	c := http.NewResponseController(w)
	// The listener's own bounds are for requests that do not wait. Where deadlines are not supported there are none.
	_ = c.SetReadDeadline(time.Now().Add(bound + requestTimeout))
	_ = c.SetWriteDeadline(time.Now().Add(bound + requestTimeout))

	draining := s.wait(r, s.o.State.Draining(), appears)
	s.answerDrained(w, draining, draining && s.wait(r, s.o.State.Drained(), s.o.Grace+drainMargin))
}

func (s *Server) answerDrained(w http.ResponseWriter, draining, drained bool) {
	switch {
	case !draining:
		answer(w, http.StatusOK, map[string]string{"state": "not draining"})
	case !drained:
		refuse(w, http.StatusServiceUnavailable, "The drain has not ended.")
	default:
		answer(w, http.StatusOK, map[string]string{"state": Drained})
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait reports whether done was closed within d, while the client is there and the server is not stopping.
func (s *Server) wait(r *http.Request, done <-chan struct{}, d time.Duration) bool {
	if closed(done) { // even when the server is stopping as well
		return true
	}
	select {
	case <-done:
		return true
	case <-time.After(d):
	case <-r.Context().Done():
	case <-s.stopping:
	}
	return false
}
