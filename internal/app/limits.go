package app

import (
	"golang.org/x/time/rate"

	"sidecar/internal/config"
)

// limits bound the consumers that share them: those of the whole process, or of one subscription.
type limits struct {
	rates []*rate.Limiter
	slots []chan struct{}
	most  int // slots of one subscription: each other one has one left
}

// newLimits returns the bounds of all subscriptions together.
func newLimits(cfg *config.Config) (l limits) {
	sum, most, subscribed := 0, cfg.Window.MaxConcurrency, cfg.Subscribed()
	for _, c := range subscribed {
		sum += c.Window.Concurrency
	}
	if l.most = sum; most > 0 && most < sum {
		l.slots, l.most = append(l.slots, make(chan struct{}, most)), most-len(subscribed)+1
	}
	return l
}

// of returns the bounds of a subscription: its own first, so that it takes nothing of all subscriptions before it can
// use it.
func (l limits) of(cfg *config.Config) limits {
	most := min(cfg.Window.Concurrency, l.most)
	if most < cfg.Window.Concurrency { // otherwise its only consumer keeps the concurrency
		l.slots = append([]chan struct{}{make(chan struct{}, most)}, l.slots...)
	}
	if r := cfg.Window.RateLimit; r != 0 { // a tenth of a second's messages at once
		l.rates = []*rate.Limiter{rate.NewLimiter(rate.Limit(r), max(1, int(r/10)))}
	}
	return l
}
