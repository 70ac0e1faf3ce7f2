package telemetry

import (
	"cmp"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
)

// Throttle limits how often one log line is written, because its cause must not be able to fill the log: the first
// line at once, then at most one per Interval.
type Throttle struct {
	Interval time.Duration // 0: a second

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Do calls log unless it did so within the last Interval. log takes the number of calls left out since then.
func (t *Throttle) Do(log func(suppressed int)) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.suppressed++
		t.mu.Unlock()
		return
	}
	n := t.suppressed
	t.next, t.suppressed = now.Add(cmp.Or(t.Interval, time.Second)), 0
	t.mu.Unlock()
	log(n)
}

// exportErrors logs the tracing SDK's errors, at most one a minute: a collector that is away fails every few seconds.
func exportErrors(logger *slog.Logger) otel.ErrorHandler {
	t := Throttle{Interval: time.Minute}
	return otel.ErrorHandlerFunc(func(err error) {
		t.Do(func(suppressed int) { logger.Warn("trace export failed", "error", err, "suppressed", suppressed) })
	})
}
