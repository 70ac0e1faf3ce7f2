package flow

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// register registers the gauges of c, which are read when they are scraped.
func register(r prometheus.Registerer, c *Control) {
	metrics := promauto.With(r)
	metrics.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_concurrency_limit",
		Help: "POSTs that may be under way right now; below SIDECAR_CONCURRENCY while ramping up.",
	}, func() float64 { return float64(c.Limit()) })
	metrics.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "sidecar_app_up", Help: "1 while the app answers its health check.",
	}, func() float64 { return oneIf(c.AppUp()) })
	for _, reason := range Reasons {
		metrics.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sidecar_paused", Help: "1 while consumption is paused for this reason.",
			ConstLabels: prometheus.Labels{"reason": string(reason)},
		}, func() float64 { return oneIf(c.Has(reason)) })
	}
}

func oneIf(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
