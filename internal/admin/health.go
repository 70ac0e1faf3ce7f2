package admin

import (
	"net/http"

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
	return func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK, map[string]bool{name: true}) }
}

func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	r := s.o.State.Ready()
	answerCheck(w, r.Ready, r)
}

// connected is one check of readiness alone, for pods that serve while they reach the broker, even if no messages are
// consumed.
func (s *Server) connected(w http.ResponseWriter, _ *http.Request) {
	broker := Check{Name: CheckBroker}
	for _, c := range s.o.State.Ready().Checks {
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
	answer(w, status, v)
}
