package telemetry

import (
	"log/slog"
	"sync"
	"time"
)

// throttle logs the tracing SDK's errors, the first at once and then at most one per interval: a dead collector
// fails every few seconds for as long as it is dead.
type throttle struct {
	logger   *slog.Logger
	interval time.Duration

	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Handle implements otel.ErrorHandler.
func (t *throttle) Handle(err error) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.suppressed++
		t.mu.Unlock()
		return
	}
	suppressed := t.suppressed
	t.next, t.suppressed = now.Add(t.interval), 0
	t.mu.Unlock()
	t.logger.Warn("trace export failed", "error", err, "suppressed", suppressed)
}
