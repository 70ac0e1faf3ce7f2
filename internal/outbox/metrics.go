package outbox

import (
	"context"
	"encoding/json"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Measuring takes no more than one part in so many of the time.
const (
	measureInterval = 15 * time.Second
	measureShare    = 20
)

// metrics count the outcomes of rows.
type metrics struct {
	connected prometheus.Gauge
	// backlog is what stmtMeasure returns, without labels. It is absent while the database cannot be reached, because an
	// old figure would look current.
	backlog  []*prometheus.GaugeVec
	rows     *prometheus.CounterVec
	duration prometheus.Histogram
}

// newMetrics panics when another metric has one of the names: a mistake in this program.
func newMetrics(r prometheus.Registerer) *metrics {
	create := promauto.With(r)
	figure := func(name, help string) *prometheus.GaugeVec {
		return create.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, nil)
	}
	m := &metrics{
		connected: create.NewGauge(prometheus.GaugeOpts{
			Name: "sidecar_outbox_connected",
			Help: "1 while the relay is connected to the outbox's database and the table can be used.",
		}),
		backlog: []*prometheus.GaugeVec{
			figure("sidecar_outbox_pending_rows",
				"Rows that are to be published, those that are due later included. Counted up to 100000."),
			figure("sidecar_outbox_quarantined_rows",
				"Rows that failed too often and are not tried any more. Counted up to 100000."),
			figure("sidecar_outbox_lag_seconds",
				"How long the row that has been due longest has been due; 0 when none is."),
		},
		rows: create.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_outbox_rows_total",
			Help: "Rows by the outcome of a try to publish them.",
		}, []string{"result"}),
		duration: create.NewHistogram(prometheus.HistogramOpts{
			Name:    "sidecar_outbox_batch_duration_seconds",
			Help:    "Time from the claim of a batch to its commit, for batches with rows.",
			Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
	}
	for r := sent; r <= unmarked; r++ {
		m.rows.WithLabelValues(r.String())
	}
	return m
}

func (m *metrics) setConnected(connected bool) {
	if connected {
		m.connected.Set(1)
		return
	}
	m.connected.Set(0)
	for _, figure := range m.backlog {
		figure.Reset()
	}
}

// setBacklog takes the row of the statement that measures, the JSON of a Status.
func (m *metrics) setBacklog(values [][]byte) error {
	var s Status
	if err := json.Unmarshal(values[0], &s); err != nil {
		return err
	}
	for i, n := range [...]float64{float64(s.Pending), float64(s.Quarantined), s.Lag} {
		m.backlog[i].WithLabelValues().Set(max(0, n))
	}
	return nil
}

// measure updates the figures about pending rows, now and then.
func (s *session) measure(ctx context.Context) error {
	start := time.Now()
	if start.Before(s.measureDue) {
		return nil
	}
	err := s.execute(ctx, s.r.metrics.setBacklog, call{name: stmtMeasure, params: [][]byte{
		number(countLimit), number(0), number(s.table.OID),
	}})
	// It reads all index entries of sent rows that VACUUM has not removed: see lowWater.
	s.measureDue = start.Add(max(measureInterval, measureShare*time.Since(start)))
	return err
}
