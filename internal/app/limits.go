package app

import (
	"golang.org/x/time/rate"

	"sidecar/internal/config"
)

// limits bound the consumers that share them: those of the whole process, or of one subscription.
type limits struct {
	rates []*rate.Limiter
	slots []chan struct{}
}

// newLimits returns the bounds of all subscriptions together.
func newLimits(cfg *config.Config, subscribed []*config.Config) (l limits) {
	sum, most := 0, cfg.Window.MaxConcurrency
	for _, c := range subscribed {
		sum += c.Window.Concurrency
	}
	if most > 0 && most < sum {
		l.slots = append(l.slots, make(chan struct{}, most))
	}
	return l.withRate(cfg.Window.MaxRate)
}

// of returns the bounds of a subscription that has several queues: its own first, so that it takes nothing of all
// subscriptions before it can use it.
func (l limits) of(cfg *config.Config, queues int) limits {
	if queues > 1 { // otherwise its only consumer keeps the concurrency
		l.slots = append([]chan struct{}{make(chan struct{}, cfg.Window.Concurrency)}, l.slots...)
	}
	return l.withRate(cfg.Window.RateLimit)
}

// withRate adds a limiter in front that lets at most a tenth of a second's messages through at once; none for 0.
func (l limits) withRate(r config.Rate) limits {
	if r != 0 {
		own := rate.NewLimiter(rate.Limit(r), max(1, int(r/10)))
		l.rates = append([]*rate.Limiter{own}, l.rates...)
	}
	return l
}
