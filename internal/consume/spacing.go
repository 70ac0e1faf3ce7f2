package consume

import (
	"sync"
	"time"
)

// spacing lets one event happen per interval.
type spacing struct {
	interval time.Duration

	mu   sync.Mutex
	next time.Time
}

// reserve takes the next free moment and returns how far away it is.
func (p *spacing) reserve() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.next.Before(now) {
		p.next = now
	}
	d := p.next.Sub(now)
	p.next = p.next.Add(p.interval)
	return d
}
