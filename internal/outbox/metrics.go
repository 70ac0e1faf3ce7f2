package outbox

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Values of the label "result" besides those of result: a row that failed for the last time, and a row that could not
// be marked.
const (
	resultQuarantined = "quarantined"
	resultUnmarked    = "unmarked"
)

// metrics count the outcomes of rows. Figures that come from the database are absent while it cannot be reached: an old
// figure would look current.
type metrics struct {
	rows     map[string]prometheus.Counter
	duration prometheus.Histogram

	connectedDesc, pendingDesc, quarantinedDesc, lagDesc *prometheus.Desc

	mu                        sync.Mutex
	connected, measured       bool
	pending, quarantined, lag float64
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{rows: map[string]prometheus.Counter{}}
	m.connectedDesc = prometheus.NewDesc("sidecar_outbox_connected",
		"1 while the relay is connected to the outbox's database and the table can be used.", nil, nil)
	m.pendingDesc = prometheus.NewDesc("sidecar_outbox_pending_rows",
		"Rows that are to be published, those that are due later included. Counted up to 100000.", nil, nil)
	m.quarantinedDesc = prometheus.NewDesc("sidecar_outbox_quarantined_rows",
		"Rows that failed too often and are not tried any more. Counted up to 100000.", nil, nil)
	m.lagDesc = prometheus.NewDesc("sidecar_outbox_lag_seconds",
		"How long the row that has been due longest has been due; 0 when none is.", nil, nil)
	rows := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_outbox_rows_total",
		Help: "Rows by the outcome of a try to publish them.",
	}, []string{"result"})
	for _, r := range []string{sent.String(), failed.String(), nacked.String(), unknown.String(), resultQuarantined,
		resultUnmarked} {
		m.rows[r] = rows.WithLabelValues(r)
	}
	m.duration = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "sidecar_outbox_batch_duration_seconds",
		Help:    "Time from the claim of a batch to its commit, for batches with rows.",
		Buckets: []float64{.0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
	})
	if r != nil {
		for _, c := range []prometheus.Collector{rows, m.duration, m} {
			if err := r.Register(c); err != nil {
				panic(err) // two different metrics of one name: a mistake in this program
			}
		}
	}
	return m
}

func (m *metrics) setConnected(connected bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.connected = connected
	m.measured = m.measured && connected
}

// setBacklog takes the row of the statement that measures.
func (m *metrics) setBacklog(row [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, at := range []*float64{&m.pending, &m.quarantined, &m.lag} {
		*at, _ = strconv.ParseFloat(string(row[i]), 64)
	}
	m.measured = true
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.connectedDesc, m.pendingDesc, m.quarantinedDesc, m.lagDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	connected := 0.0
	if m.connected {
		connected = 1
	}
	ch <- prometheus.MustNewConstMetric(m.connectedDesc, prometheus.GaugeValue, connected)
	if !m.measured {
		return
	}
	ch <- prometheus.MustNewConstMetric(m.pendingDesc, prometheus.GaugeValue, m.pending)
	ch <- prometheus.MustNewConstMetric(m.quarantinedDesc, prometheus.GaugeValue, m.quarantined)
	ch <- prometheus.MustNewConstMetric(m.lagDesc, prometheus.GaugeValue, max(0, m.lag))
}
