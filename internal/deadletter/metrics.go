package deadletter

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct{ ok, failed prometheus.Counter }

func newMetrics(r prometheus.Registerer) *metrics {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_redriven_total",
		Help: "Parked messages moved back into the flow (ok) or left parked because the move failed (failed).",
	}, []string{"result"})
	if r != nil {
		if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](r.Register(v)); ok {
			v, _ = already.ExistingCollector.(*prometheus.CounterVec) // the registry has the series from the start
		}
	}
	return &metrics{ok: v.WithLabelValues("ok"), failed: v.WithLabelValues("failed")}
}
