package app

import (
	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/config"
)

// consumes is false for a service that only sends: its queue is none of our business then, and may not even exist.
func (a *App) consumes() bool { return a.cfg.Service.Consume == config.ConsumeOn }

// consumeRegistry takes the metrics of consuming. Where nothing is consumed nobody sees them: a consumer that is not there
// would look like one that has stopped.
func (a *App) consumeRegistry() prometheus.Registerer {
	if a.consumes() {
		return a.registry
	}
	return prometheus.NewRegistry()
}

// readyToPublish is readiness where nothing is consumed.
func (s state) readyToPublish() admin.Readiness {
	a := s.a
	r := admin.Readiness{Ready: true, Checks: []admin.Check{{Name: "not_draining", OK: !closed(a.draining)}}}
	for _, c := range r.Checks {
		r.Ready = r.Ready && c.OK
	}
	return r
}
