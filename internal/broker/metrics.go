package broker

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/message"
)

// kinds are the values of the label "kind" that are there from the start; any other one counts as message.KindOther.
var kinds = []string{
	message.KindPark, message.KindRetry, message.KindRedrive, message.KindPublish, message.KindOutbox, message.KindOther,
}

// metrics is shared by the dialers of one Registerer: connected and blocked are about the whole process.
type metrics struct {
	*links
	reconnects *prometheus.CounterVec
	confirm    map[string]prometheus.Observer
}

func newMetrics(r prometheus.Registerer) *metrics {
	reconnects := register(r, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_amqp_reconnects_total",
		Help: "Connections to the broker that were lost or could not be made, by cause.",
	}, []string{"cause"}))
	confirm := register(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "sidecar_publish_confirm_duration_seconds",
		Help:    "Time from publishing to the broker's confirm, by kind of publication.",
		Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}, []string{"kind"}))
	m := &metrics{
		links: register(r, newLinks()), reconnects: reconnects, confirm: make(map[string]prometheus.Observer, len(kinds)),
	}
	for _, c := range causes {
		reconnects.WithLabelValues(string(c))
	}
	for _, k := range kinds {
		m.confirm[k] = confirm.WithLabelValues(k)
	}
	return m
}

// unregistered are the counters of all dialers without a registry: each subscription has one for its dead letters.
var unregistered = sync.OnceValue(func() *metrics { return newMetrics(nil) })

func metricsOf(r prometheus.Registerer) *metrics {
	if r != nil {
		return newMetrics(r)
	}
	m := *unregistered()
	m.links = newLinks() // with the log lines that one dialer suppresses
	return &m
}

// register returns the collector that is already there when another dialer was first.
func register[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	if err != nil {
		panic(err) // two different metrics of one name: a mistake in this program
	}
	return c
}

func (m *metrics) reconnect(c cause) { m.reconnects.WithLabelValues(string(c)).Inc() }

func (m *metrics) confirmed(kind string, d time.Duration) {
	o, ok := m.confirm[kind]
	if !ok {
		o = m.confirm[message.KindOther]
	}
	o.Observe(d.Seconds())
}

// links are the supervised connections of the process.
type links struct {
	connected, blocked *prometheus.Desc

	troubles sync.Map // lines about a broker that cannot be reached: a *telemetry.Throttle for each

	mu   sync.Mutex
	all  map[*link]struct{}
	over bool // none is left and none is wanted: a drained sidecar is not one that has lost its broker
}

type link struct {
	alarm   *Alarm
	session *Session // nil while down
}

func newLinks() *links {
	return &links{
		connected: prometheus.NewDesc("sidecar_amqp_connected",
			"1 while every connection to the broker that should be up is up; absent after a drain, when none should.", nil, nil),
		blocked: prometheus.NewDesc("sidecar_amqp_blocked",
			"1 while the broker's resource alarm blocks a connection.", nil, nil),
		all: map[*link]struct{}{},
	}
}

func (l *links) addLink(a *Alarm) *link {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := &link{alarm: a}
	l.all[k] = struct{}{}
	l.over = false
	return k
}

func (l *links) removeLink(k *link) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.all, k)
	l.over = len(l.all) == 0
}

// setLink notes that the link is up with a session, or down without one.
func (l *links) setLink(k *link, s *Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k.session = s
}

// Describe implements prometheus.Collector.
func (l *links) Describe(ch chan<- *prometheus.Desc) {
	ch <- l.connected
	ch <- l.blocked
}

// Collect implements prometheus.Collector.
func (l *links) Collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	connected, blocked, over := len(l.all) > 0, false, l.over
	for k := range l.all {
		connected = connected && k.session != nil && k.session.Err() == nil
		since, _ := k.alarm.Since() // also while the link is down
		blocked = blocked || !since.IsZero()
	}
	l.mu.Unlock()
	if !over {
		ch <- prometheus.MustNewConstMetric(l.connected, prometheus.GaugeValue, gauge(connected))
	}
	ch <- prometheus.MustNewConstMetric(l.blocked, prometheus.GaugeValue, gauge(blocked))
}

func gauge(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
