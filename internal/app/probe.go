package app

import (
	"context"
	"sync"
	"time"

	"sidecar/internal/config"
)

// probes has one probe for all subscriptions that would ask the same app the same, by what they ask.
type probes map[probed]*probe

type probed struct {
	origin, path, token string
	interval            time.Duration
}

// probe asks an app at most once in an interval.
type probe struct {
	ask   func(context.Context) error
	valid time.Duration

	mu  sync.Mutex
	at  time.Time // of the last answer; zero: there is none
	err error     // that answer
}

// of returns the probe of the app that cfg describes; ask is used if it is the first.
func (p probes) of(cfg *config.App, origin string, ask func(context.Context) error) *probe {
	key := probed{origin: origin, path: cfg.HealthPath, interval: cfg.HealthInterval}
	if key.path != "" {
		key.token, _ = cfg.Token.Value() // nothing but a health request carries it
	}
	if p[key] == nil {
		// Less than the interval: the probes of one subscription must not find their own last answer.
		p[key] = &probe{ask: ask, valid: cfg.HealthInterval / 2}
	}
	return p[key]
}

// run returns the app's answer, or the one that another subscription has just got.
func (p *probe) run(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || time.Since(p.at) > p.valid {
		err := p.ask(ctx)
		if ctx.Err() != nil {
			return err
		}
		p.at, p.err = time.Now(), err
	}
	return p.err
}
