package brokertest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/apptest"
	"sidecar/internal/testkit/must"
)

// Log collects log lines. A test may read them while others are written.
type Log = apptest.Log

// Metric returns the sum of the metric's series that have the labels, given as names and values. A histogram counts as
// the number of its observations.
func Metric(t testing.TB, r prometheus.Gatherer, name string, labels ...string) (sum float64) {
	t.Helper()
	for _, f := range must.Get(r.Gather())(t) {
		for _, m := range f.GetMetric() {
			missing := len(labels) / 2
			for _, l := range m.GetLabel() {
				for i := 0; i < len(labels); i += 2 {
					if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
						missing--
					}
				}
			}
			if f.GetName() == name && missing == 0 {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}
