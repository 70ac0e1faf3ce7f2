// Package telemetry makes the logger, the metric registry and the tracer. It names no metric of another package,
// decides nothing about a message and reads no environment; the only variables read below it are the batching and span
// limits (OTEL_BSP_*, OTEL_SPAN_*), which the OpenTelemetry SDK reads by itself.
package telemetry

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// NewRegistry makes the registry every package registers its metrics with. It already holds the Go and process
// collectors in their small form and sidecar_build_info.
func NewRegistry(version, commit string) *prometheus.Registry {
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "sidecar_build_info",
		Help:        "Always 1; the labels say which build this is.",
		ConstLabels: prometheus.Labels{"version": version, "commit": commit, "goversion": runtime.Version()},
	})
	build.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), build)
	return r
}
