package consume

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"sidecar/internal/message"
)

type metrics struct {
	received     [2]prometheus.Counter // by redelivered
	settled      [message.Actions][message.Reasons]prometheus.Counter
	age          prometheus.Observer
	retries      prometheus.Observer
	parkFailures prometheus.Counter
	stale        prometheus.Counter
	throttled    prometheus.Counter
	batch        prometheus.Observer
	split        prometheus.Counter
	remembered   prometheus.Counter
}

// newMetrics registers the metrics of c. They have no label for the queue: r adds it.
func newMetrics(r prometheus.Registerer, c *Consumer) *metrics {
	create := promauto.With(r)
	received := create.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_messages_received_total", Help: "Deliveries received from the broker.",
	}, []string{"redelivered"})
	settled := create.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_messages_settled_total", Help: "Deliveries settled, by the outcome of the message and why.",
	}, []string{"outcome", "reason"})
	m := &metrics{
		received: [2]prometheus.Counter{
			received.WithLabelValues("false"), received.WithLabelValues("true"),
		},
		age: create.NewHistogram(prometheus.HistogramOpts{
			Name:    "sidecar_message_age_seconds",
			Help:    "Age of a message when it is received, by its timestamp property (whole seconds).",
			Buckets: []float64{1, 5, 15, 60, 300, 1800, 7200, 43200, 259200},
		}),
		retries: create.NewHistogram(prometheus.HistogramOpts{
			Name:    "sidecar_message_retries",
			Help:    "Retries a message had behind it when it left the queue permanently.",
			Buckets: []float64{0, 1, 2, 3, 5, 10, 20, 50},
		}),
		parkFailures: create.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_park_failures_total",
			Help: "Publishes to the dead-letter queue that failed; the message stays unacked and is tried again.",
		}),
		throttled: create.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_throttled_seconds_total",
			Help: "Time in which a message and a worker were ready and a rate or SIDECAR_MAX_CONCURRENCY held them back.",
		}),
		stale: create.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_stale_deliveries_total",
			Help: "Settlements skipped because their session had gone; the broker delivers these messages again.",
		}),
		remembered: create.NewCounter(prometheus.CounterOpts{
			Name: "sidecar_settled_from_memory_total",
			Help: "Messages that were delivered again after a lost connection and settled by an earlier answer, without a POST.",
		}),
	}
	m.registerBatches(create, c)
	for a, reasons := range possibleReasons {
		action := message.Action(a) // #nosec G115 -- a handful
		for _, reason := range reasons {
			m.settled[action][reason] = settled.WithLabelValues(action.String(), reason.String())
		}
	}
	registerGauges(create, c)
	return m
}

// registerBatches registers what is measured of batches, if there are any.
func (m *metrics) registerBatches(create promauto.Factory, c *Consumer) {
	if c.o.Batch.Size < 2 {
		return
	}
	m.batch = create.NewHistogram(prometheus.HistogramOpts{
		Name: "sidecar_batch_messages", Help: "Messages in one POST.",
		Buckets: []float64{1, 2, 5, 10, 20, 50, 100, 200, 500, 1000},
	})
	m.split = create.NewCounter(prometheus.CounterOpts{
		Name: "sidecar_batches_split_total",
		Help: "POSTs of several messages that failed as a whole; the messages are POSTed again, each alone.",
	})
}

// registerGauges registers what is read when it is scraped, so that keeping it costs the hot path one atomic addition.
func registerGauges(create promauto.Factory, c *Consumer) {
	gauge := func(name, help string, value func() float64) {
		create.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("sidecar_consumer_active", "1 while a consumer is registered with the broker.", func() float64 {
		if c.Active() {
			return 1
		}
		return 0
	})
	gauge("sidecar_max_retries", "Retries a message gets before it is parked, as configured.",
		func() float64 { return float64(c.o.Plan.MaxRetries) })
	gauge("sidecar_inflight_messages", "Messages being POSTed.", func() float64 { return float64(c.Inflight()) })
	gauge("sidecar_inflight_requests", "POSTs under way.",
		func() float64 { return max(0, float64(c.counts.posts.Load())) })
	gauge("sidecar_delayed_messages", "Messages delayed locally before a requeue.",
		func() float64 { return float64(c.Delayed()) })
	if _, ok := c.Waiting(); ok {
		gauge("sidecar_waiting_messages", "Messages that this process has rejected and the service's queue still delays; "+
			"what did so before its start is not known to it.", func() float64 { n, _ := c.Waiting(); return float64(n) })
	}
}

var parkReasons = []message.Reason{
	message.ReasonDisposition, message.ReasonMaxRetries, message.ReasonParkStatus, message.ReasonTooLarge,
	message.ReasonHeadersTooLarge, message.ReasonNoRoute,
}

// possibleReasons names the pairs that can occur, so that every series exists from the start and no other ever does.
var possibleReasons = [message.Actions][]message.Reason{
	message.Ack: {
		message.ReasonSuccess, message.ReasonDisposition, message.ReasonForeignRetry, message.ReasonNoRoute,
		message.ReasonReplaced,
	},
	message.Retry: {
		message.ReasonDisposition, message.ReasonConflict, message.ReasonRateLimited, message.ReasonServerError,
		message.ReasonClientError, message.ReasonRedirect, message.ReasonInvalidStatus, message.ReasonTimeout,
		message.ReasonReset, message.ReasonMalformed, message.ReasonRefused,
	},
	message.Requeue: {
		message.ReasonTooEarly, message.ReasonDisposition, message.ReasonPanic, message.ReasonTooLarge,
	},
	message.Park:    parkReasons,
	message.Discard: parkReasons, // when the plan has no dead-letter queue
	message.Release: {message.ReasonAppDown, message.ReasonShutdown, message.ReasonUndispatched,
		message.ReasonSessionLost, message.ReasonDeferred},
}
