package dispatch

import (
	"cmp"
	"strconv"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sidecar/internal/message"
)

// metrics count attempts. Every label comes from a closed set: the statuses 200 to 599, "invalid", the failures' names.
type metrics struct {
	requests  *prometheus.CounterVec // by code
	codes     [firstFailure + int(message.FailureInterrupted) + 1]atomic.Pointer[prometheus.Counter]
	durations [len(outcomes)]prometheus.Observer
	truncated prometheus.Counter
}

// Places in codes beside those of the statuses 200 to 599.
const (
	invalid      = 0
	firstFailure = 600
)

var outcomes = [...]string{"2xx", "3xx", "4xx", "5xx", "error"}

func newMetrics(r prometheus.Registerer) *metrics {
	create := promauto.With(r)
	durations := create.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sidecar_http_request_duration_seconds",
		Help:    "Duration of an attempt, from connect to the end of the answer.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
	}, []string{"outcome"})
	m := &metrics{
		requests: create.NewCounterVec(prometheus.CounterOpts{
			Name: "sidecar_http_requests_total",
			Help: "Attempts to POST a message to the app, by status code or failure.",
		}, []string{"code"}),
		truncated: create.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_headers_truncated_total",
			Help: "Message headers left out of requests because they did not fit or could not be said.",
		}),
	}
	for i, o := range outcomes {
		m.durations[i] = durations.WithLabelValues(o)
	}
	m.requests.WithLabelValues("200") // the name exists before the first message does
	return m
}

// count records one outcome. A message that was not sent was no request. A series exists from its first attempt on: 400
// zeros would only be noise.
func (m *metrics) count(o *message.Outcome) {
	if o.Truncated > 0 {
		m.truncated.Add(float64(o.Truncated))
	}
	if o.Failure == message.FailureTooLarge || !o.Posted() {
		return
	}
	slot, code, outcome := invalid, "invalid", len(outcomes)-1
	switch {
	case o.Failure != message.FailureNone:
		slot, code = firstFailure+int(o.Failure), o.Failure.String()
	case 200 <= o.Status && o.Status <= 599:
		slot, code, outcome = o.Status, "", o.Status/100-2
	}
	requests := m.codes[slot].Load()
	if requests == nil { // the first of its code
		requests = new(m.requests.WithLabelValues(cmp.Or(code, strconv.Itoa(o.Status))))
		m.codes[slot].Store(requests)
	}
	(*requests).Inc()
	m.durations[outcome].Observe(o.Elapsed.Seconds())
}
