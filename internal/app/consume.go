package app

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/deadletter"
)

// subscribe builds a subscription for each owner, and the two connections that they share. Publishing has a connection
// of its own: the broker does not read from a connection that publishes during a memory alarm, and would not
// see the acks.
func (a *App) subscribe(owners []deadletter.Owner) error {
	if len(owners) == 0 {
		return nil
	}
	consuming := a.brokerOptions("consume")
	consuming.Memory, consuming.Spool = a.budget.Account(budget.Deliveries), a.spool
	a.dialer = broker.NewDialer(consuming)
	a.publisher = a.newPublisher("publish", owners[0].Plan.PublishRoutes()[0].Exchange)
	shares := make([]*budget.Account, 1)
	if len(owners) > 1 {
		shares = consuming.Memory.Shares(len(owners))
	}
	for i, cfg := range a.cfg.Subscribed() {
		plan, sh := owners[i].Plan, a.shared
		sh.limits = sh.limits.of(cfg)
		s, err := newSubscription(sh, cfg, plan, shares[i])
		if err != nil {
			return fmt.Errorf("%w: queue %s: %w", ErrConfig, plan.Queue, err)
		}
		a.subscriptions = append(a.subscriptions, s)
	}
	return nil
}

// consume probes the apps and keeps both connections up until ctx ends.
func (a *App) consume(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	var serves, checks []broker.Serve
	for _, s := range a.subscriptions {
		defer s.close()
		group.Go(func() error { return s.flow.Run(ctx) })
		serves = append(serves, a.isolate(s, func() {
			group.Go(func() error { return broker.Supervise(ctx, a.dialer, s.serve) })
		}))
		checks = append(checks, s.checkPublishing)
	}
	group.Go(func() error { return a.publisher.Run(ctx, checks...) })
	group.Go(func() error { return broker.Supervise(ctx, a.dialer, serves...) })
	return group.Wait()
}

// isolate serves s with the others until its queue costs all of them their connection: then it calls leave, once, and
// s is served on the connection that leave keeps up.
func (a *App) isolate(s *subscription, leave func()) broker.Serve {
	return func(ctx context.Context, link *broker.Session) error {
		if s.isolated.Load() {
			return nil
		}
		err := s.serve(ctx, link)
		if errors.Is(err, broker.ErrUnavailable) && len(a.subscriptions) > 1 {
			s.log.Warn("queue gets a connection of its own", "error", err)
			s.isolated.Store(true)
			leave()
		}
		return err
	}
}

// drainAll drains every subscription, side by side.
func (a *App) drainAll(t stopTime) {
	var all sync.WaitGroup
	for _, s := range a.subscriptions {
		all.Go(func() { s.drain(t) })
	}
	all.Wait()
}
