package admin

import (
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sidecar/internal/httpguard"
	"sidecar/internal/telemetry"
)

// adminRoutes is all that the admin listener has. It checks neither Host nor origin: probes and scrapers come by pod
// address or any name, nothing here changes anything, and nothing here is secret.
func (s *Server) adminRoutes() httpguard.Routes {
	metrics := promhttp.HandlerFor(s.o.Gatherer, promhttp.HandlerOpts{
		ErrorLog:      telemetry.LibraryLog(s.o.Logger, "prometheus"),
		ErrorHandling: promhttp.ContinueOnError,
		// A page is a few kilobytes; a compressor's state is most of a megabyte.
		DisableCompression: true,
	})
	return httpguard.Routes{
		// Neither depends on anything: restarting the sidecar repairs neither the broker nor the app, and the startup probe
		// of a native sidecar holds the app's start back, so waiting for the app would wait for ever.
		"/livez":    httpguard.Get(yes("live")),
		"/startupz": httpguard.Get(yes("started")),

		"/readyz":        httpguard.Get(s.ready),
		"/readyz/broker": httpguard.Get(s.connected),
		"/metrics":       httpguard.Get(s.scrapes.Limit(metrics.ServeHTTP)),
		"/drained":       httpguard.Get(s.drained),
	}
}

func yes(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		httpguard.Answer(w, http.StatusOK, map[string]bool{name: true})
	}
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	name, status, detail := s.subscription(r, false)
	if status != 0 {
		httpguard.Refuse(w, status, "", detail)
		return
	}
	ready := s.o.State.Ready(name)
	answerCheck(w, ready.Ready, ready)
}

// connected is one check of readiness alone, for pods that serve while they reach the broker, even if no messages are
// consumed.
func (s *Server) connected(w http.ResponseWriter, _ *http.Request) {
	broker := Check{Name: CheckBroker}
	for _, c := range s.o.State.Ready("").Checks {
		if c.Name == CheckBroker {
			broker = c
		}
	}
	answerCheck(w, broker.OK, broker)
}

func answerCheck(w http.ResponseWriter, ok bool, v any) {
	status := http.StatusOK
	if !ok {
		status = http.StatusServiceUnavailable
	}
	httpguard.Answer(w, status, v)
}

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
	draining, drained := Closed(s.o.State.Draining()), Closed(s.o.State.Drained())
	if address, _, _ := net.SplitHostPort(r.RemoteAddr); s.waits.enter(address) {
		defer s.waits.leave(address)
		appears := drainAppears
		if strings.HasPrefix(r.UserAgent(), hookAgent) {
			appears = hookAppears
		}
		// The listener's own bounds are for requests that do not wait. Where deadlines are not supported there are none.
		end := time.Now().Add(appears + s.o.Grace + drainMargin + requestTimeout)
		c := http.NewResponseController(w)
		_, _ = c.SetReadDeadline(end), c.SetWriteDeadline(end)
		draining = s.wait(r, s.o.State.Draining(), appears)
		drained = draining && s.wait(r, s.o.State.Drained(), s.o.Grace+drainMargin)
	}
	switch {
	case !draining:
		httpguard.Answer(w, http.StatusOK, map[string]string{"state": "not draining"})
	case !drained:
		httpguard.Refuse(w, http.StatusServiceUnavailable, "", "The drain has not ended.")
	default:
		httpguard.Answer(w, http.StatusOK, map[string]string{"state": Drained})
	}
}

// Closed reports whether a channel is closed.
func Closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// wait reports whether done was closed within d, while the client is there and the server is not stopping.
func (s *Server) wait(r *http.Request, done <-chan struct{}, d time.Duration) bool {
	if Closed(done) { // even when the server is stopping as well
		return true
	}
	select {
	case <-done:
		return true
	case <-time.After(d):
	case <-r.Context().Done():
	case <-s.stopping.Done():
	}
	return false
}
