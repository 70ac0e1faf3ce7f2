package app

import (
	"golang.org/x/time/rate"

	"sidecar/internal/config"
)

// limits bound all subscriptions of the process together.
type limits struct {
	rate  *rate.Limiter // nil: no limit
	slots chan struct{} // nil: no bound beside the concurrency of each subscription
}

func newLimits(cfg *config.Config, subscribed []*config.Config) limits {
	l := limits{rate: newLimiter(cfg.Window.MaxRate)}
	sum, most := 0, cfg.Window.MaxConcurrency
	for _, c := range subscribed {
		sum += c.Window.Concurrency
	}
	if most > 0 && most < sum {
		l.slots = make(chan struct{}, most)
	}
	return l
}

// newLimiter returns a limiter that lets at most a tenth of a second's messages through at once; nil for 0.
func newLimiter(r config.Rate) *rate.Limiter {
	if r == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(r), max(1, int(r/10)))
}

// rates returns the limiters of the subscription's messages: its own first, so that it takes no token of all
// subscriptions before it can use it.
func (s *subscription) rates() (all []*rate.Limiter) {
	for _, l := range []*rate.Limiter{newLimiter(s.cfg.Window.RateLimit), s.limits.rate} {
		if l != nil {
			all = append(all, l)
		}
	}
	return all
}
