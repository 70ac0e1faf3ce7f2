package httpguard

import (
	"sync"
	"time"
)

// Throttle lets one log line per second through: whoever is refused must not be able to fill the log.
type Throttle struct {
	mu         sync.Mutex
	next       time.Time
	suppressed int
}

// Do calls log unless it did so within the last second. log takes the number of calls left out before.
func (t *Throttle) Do(log func(suppressed int)) {
	t.mu.Lock()
	now := time.Now()
	if now.Before(t.next) {
		t.suppressed++
		t.mu.Unlock()
		return
	}
	n := t.suppressed
	t.next, t.suppressed = now.Add(time.Second), 0
	t.mu.Unlock()
	log(n)
}
