package flow

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	limit  prometheus.Gauge
	appUp  prometheus.Gauge
	paused map[Reason]prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, queue string) *metrics {
	paused := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "sidecar_paused", Help: "1 while consumption is paused for this reason.",
	}, []string{"queue", "reason"})
	m := &metrics{
		limit: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_concurrency_limit",
			Help: "Messages that may be in flight right now; below SIDECAR_CONCURRENCY while ramping up.",
		}),
		appUp: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_app_up", Help: "1 while the app answers its health check.",
		}),
		paused: make(map[Reason]prometheus.Gauge, len(Reasons)),
	}
	for _, reason := range Reasons {
		m.paused[reason] = paused.WithLabelValues(queue, string(reason))
	}
	r.MustRegister(m.limit, m.appUp, paused)
	return m
}
