package config

import "strings"

// maxPrefetch is the largest prefetch AMQP can say: 16 bits, and 0 means without limit.
const maxPrefetch = 65535

// Window is how many messages are held and POSTed at a time.
type Window struct {
	// Messages POSTed at once.
	Concurrency int `env:"CONCURRENCY" envDefault:"10" range:"1..10000"`

	// Messages taken from the broker and not settled yet: those being POSTed, those next in line, and those that sleep
	// after a 425 (at most prefetch − concurrency). At least `SIDECAR_CONCURRENCY`.
	Prefetch int `env:"PREFETCH" derived:"twice SIDECAR_CONCURRENCY" range:"1..65535"`

	// A message with a larger body is parked with the reason `too_large` and never POSTed. In the worst case prefetch
	// bodies of this size are in memory: setting `SIDECAR_PREFETCH` to more than three quarters of the memory limit
	// would hold is an error; a default that could be too much is a warning, and so is what publishing (64 MiB, or one body)
	// and the outbox (32 MiB) may hold on top. The limit is the container's, or `GOMEMLIMIT` when that is smaller.
	MaxBody Size `env:"MAX_BODY" envDefault:"16MiB" range:"1..512MiB"`
}

func (l *loader) checkWindow() {
	const concurrency, prefetch, maxBody = "SIDECAR_CONCURRENCY", "SIDECAR_PREFETCH", "SIDECAR_MAX_BODY"
	w := &l.cfg.Window
	explicit := l.isSet(prefetch)
	if !l.ok(concurrency, prefetch) {
		return
	}
	switch {
	case !explicit:
		w.Prefetch = min(2*w.Concurrency, maxPrefetch)
	case w.Prefetch < w.Concurrency:
		l.reject(prefetch, "must be at least SIDECAR_CONCURRENCY, which is %d", w.Concurrency)
		return
	}
	if l.memory <= 0 || !l.ok(maxBody) {
		return
	}
	// Explicit settings are refused when they cannot hold; defaults only warn, because most messages are far smaller
	// than the limit and a pod with little memory must start without tuning.
	budget := l.memory / 4 * 3
	others, who := l.besides()
	switch needed := int64(w.Prefetch) * int64(w.MaxBody); {
	case int64(w.MaxBody) > budget:
		l.reject(maxBody, "one such message does not fit into three quarters of the memory limit of %v", Size(l.memory))
	case needed+others <= budget:
	case needed <= budget:
		l.warn(maxBody, "%d messages of %v each, and the %v that %s may hold, would not fit into three quarters of the memory limit of %v: "+
			"raise the limit, or lower it if large messages are to be expected", w.Prefetch, w.MaxBody, Size(others), who, Size(l.memory))
	case explicit:
		l.reject(prefetch, "with SIDECAR_MAX_BODY=%v up to %v of messages would be held, and three quarters of the memory "+
			"limit are %d bytes: lower one of the two", w.MaxBody, Size(needed), budget)
	default:
		l.warn(maxBody, "%d messages of %v each would not fit into the memory limit of %v: lower it if large messages are to be expected",
			w.Prefetch, w.MaxBody, Size(l.memory))
	}
}

// What is held besides the window at most, in bytes: packages publish and outbox keep to it.
const (
	publishBytes = 64 << 20 // of bodies on their way from the app, or one body when that is more
	outboxBytes  = 32 << 20 // of rows, unless one alone is larger, which nobody knows before
)

// besides is how much memory the bodies that are published may take, and for whom.
func (l *loader) besides() (bytes int64, who string) {
	var names []string
	if l.cfg.Publish.Addr != "" {
		bytes += max(publishBytes, int64(l.cfg.Publish.MaxBody))
		names = append(names, "publishing")
	}
	if l.isSet("SIDECAR_OUTBOX_DSN") {
		bytes += outboxBytes
		names = append(names, "the outbox")
	}
	return bytes, strings.Join(names, " and ")
}
