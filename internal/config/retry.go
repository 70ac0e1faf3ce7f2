package config

import "time"

// The values of SIDECAR_APP_DOWN.
const (
	AppDownHold  = "hold"
	AppDownRetry = "retry"
)

// MaxOrderDelay bounds the delays of messages in order: they wait unsettled.
const MaxOrderDelay = 10 * time.Minute

// maxTimeout and maxHeld bound how long a delivery may stay unsettled where the broker cannot be asked to wait longer.
// It closes the channel after 30 minutes.
const maxTimeout, maxHeld = 20 * time.Minute, 25 * time.Minute

// Retry configures what happens to a message that did not get a 2xx.
type Retry struct {
	// Retries after the first attempt. `10` means that the 11th failed attempt parks the message, `0` that the first
	// does.
	MaxRetries *int `env:"MAX_RETRIES" preset:"10 for fanout and native; 3 for topic-tiers, per-queue and delay-ladder; 4 for dead-letter" range:"0..1000000" plan:"$.max_retries"` // nil = the preset's own

	// How long a message waits in the retry queue, with `native` in the service's queue. It may be changed: messages then
	// wait in a queue beside it that is named with the new delay. Not together with `SIDECAR_RETRY_DELAYS`.
	Delay time.Duration `env:"RETRY_DELAY" preset:"5s for fanout, dead-letter and native, 15s for per-queue" range:"1ms..1193h2m47.295s" unit:"1ms" plan:"$.waits[].delay"`

	// Delays of the first, second, … retry; the last one repeats. Each is a queue of its own. With `native` exactly two:
	// the n-th retry waits n times the first, at most the second. `none`, only with `delay-ladder`: straight to the
	// dead-letter queue.
	Delays []time.Duration `env:"RETRY_DELAYS" preset:"30s,5m,30m for topic-tiers; 2s,5s,15s for delay-ladder; none for the others" range:"1ms..1193h2m47.295s" unit:"1ms" allowed:"at most 32 ascending durations separated by commas, or 'none'" plan:"$.waits[].delay"` // nil = the preset's own, empty = none

	// Answers that park a message at once.
	ParkOnStatus []int `env:"PARK_ON_STATUS" allowed:"distinct status codes from 300 to 599 separated by commas"`

	// How much of the last failing answer's body is kept with a parked message as text: as the header `x-final-answer`.
	// `0`: nothing. What is not text or is compressed is named by its type and size. It may contain personal data.
	ParkAnswer Size `env:"PARK_ANSWER" envDefault:"1KiB" range:"0..4KiB"`

	// What a connection that could not be opened means. `hold`: it is not about the message, so it is not an attempt and
	// the sidecar pauses until the app is up again. `retry`: it is a failed attempt like any other and may park.
	AppDown string `env:"APP_DOWN" envDefault:"hold" oneof:"hold|retry"`

	// A message answered with 425 is delayed here for a random time between a fifth of this, at least 250 ms, and this.
	// Then it is requeued without being counted.
	RequeueDelayMax time.Duration `env:"REQUEUE_DELAY_MAX" envDefault:"5s" range:"250ms..10m"`

	// The longest wait an app can ask for with `Retry-After`.
	RetryAfterMax time.Duration `env:"RETRY_AFTER_MAX" envDefault:"5m" range:"1s..24m"`

	// Messages with the same key are handled one after the other, in the queue's order; different keys beside each other.
	// The key is the routing key of the first publish, the correlation id or a header (`header:NAME`); with `queue` all
	// messages are in one order. Messages without the key are in no order. A failed message is tried again here, and what
	// has its key waits behind it.
	OrderBy string `env:"ORDER_BY" check:"order" otherwise:"no order" allowed:"routing-key, correlation-id, queue, or 'header:' and the name of a header"`

	// Where the order holds. `cluster`: over all replicas, which needs a queue with a single active consumer. `replica`:
	// among the messages of each replica only, with any queue.
	OrderScope string `env:"ORDER_SCOPE" envDefault:"cluster" oneof:"cluster|replica"`
}

func (l *loader) checkRetry() {
	const high, after, timeout, delay, delays, by = "SIDECAR_REQUEUE_DELAY_MAX", "SIDECAR_RETRY_AFTER_MAX",
		"SIDECAR_APP_TIMEOUT", "SIDECAR_RETRY_DELAY", "SIDECAR_RETRY_DELAYS", "SIDECAR_ORDER_BY"
	r := l.cfg.Retry
	l.checkHeld(timeout, after, high, by)
	if l.isSet(delay) && l.isSet(delays) {
		l.reject(delay, "cannot be combined with %s", delays)
	}
	if r.OrderBy != "" && l.ok(by, after) && r.RetryAfterMax > MaxOrderDelay {
		l.reject(after, "must not be more than 10m together with %s: the message waits unsettled", by)
	}
}

// checkHeld rejects attempts that are longer than the broker waits. That of a plan's queue is not known here.
func (l *loader) checkHeld(timeout, after, high, by string) {
	const why = "after 30 minutes the broker takes an unsettled message away. A quorum queue of RabbitMQ 4.3 allows " +
		"more: SIDECAR_TOPOLOGY=native or SIDECAR_QUEUE_TYPE=quorum, without SIDECAR_ORDER_BY"
	t, r, attempt := &l.cfg.Topology, &l.cfg.Retry, l.cfg.App.Timeout
	long := t.Preset == "native" || t.QueueType == "quorum" || t.PlanFile != ""
	if !l.ok(timeout, by) || long && r.OrderBy == "" {
		return
	}
	if attempt > maxTimeout {
		l.reject(timeout, "must not be more than 20m: "+why)
		return
	}
	for name, wait := range map[string]time.Duration{after: r.RetryAfterMax, high: r.RequeueDelayMax} {
		if l.ok(name) && attempt+wait > maxHeld {
			l.reject(name, "together with %s, which is %v, it must not be more than 25m: "+why, timeout, attempt)
		}
	}
}
