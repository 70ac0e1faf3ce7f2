package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes the registry every package registers its metrics with. It already holds the Go and process
// collectors in their small form, sidecar_build_info and sidecar_redriven_total.
func NewRegistry(version, commit string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		newBuildInfo(version, commit),
		newRedriven(),
	)
	return r
}

func newBuildInfo(version, commit string) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sidecar_build_info",
		Help: "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{
			"version": version, "commit": commit, "goversion": runtime.Version(),
		},
	})
	g.Set(1)
	return g
}

// newRedriven exports both results at 0: dashboards and alerts need the series before anything is ever redriven.
func newRedriven() prometheus.Collector {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_redriven_total",
		Help: "Parked messages moved back into the flow (ok) or left parked because the move failed (failed).",
	}, []string{"result"})
	for _, result := range []string{"ok", "failed"} {
		c.WithLabelValues(result)
	}
	return c
}
