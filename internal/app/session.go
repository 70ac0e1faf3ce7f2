package app

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/topology"
)

// checkInterval is how often a topology that does not fit is looked at again, and how often what we may declare is
// declared again: a binding that has gone shows in no other way.
const checkInterval = 15 * time.Second

// errSessionDone ends what runs beside a consumer that has ended.
var errSessionDone = errors.New("session done")

// serve is one broker session: first the topology, then messages, because a message rejected into a hole is lost.
func (a *App) serve(ctx context.Context, s *broker.Session) error {
	if err := a.ensureFirst(ctx, s); err != nil {
		return err
	}
	// The look that was to follow a returned publication may have ended with the session before. This one stands for it:
	// what it could not repair shows again at the next publication.
	a.take(routes, nil)
	a.connected.Store(true)
	defer a.connected.Store(false)
	group, ctx := errgroup.WithContext(ctx)
	beside := func(watch func(context.Context) error) func() error {
		return func() error {
			err := watch(ctx)
			if ctx.Err() == nil {
				s.Kill() // nobody looks after the topology any more: begin anew
			}
			return err
		}
	}
	group.Go(beside(func(ctx context.Context) error { return a.watcher.Watch(ctx, s) }))
	group.Go(beside(func(ctx context.Context) error { return a.repair(ctx, s) }))
	group.Go(func() error {
		if err := a.consumer.Serve(ctx, s); err != nil {
			return err
		}
		return errSessionDone
	})
	if err := group.Wait(); !errors.Is(err, errSessionDone) {
		return err
	}
	return nil
}

// missing is told by the watcher what has gone since the topology was last looked at.
func (a *App) missing(findings []topology.Finding) {
	if len(findings) == 0 || a.cfg.Topology.Mode == string(topology.ModeNone) {
		return
	}
	a.flow.Hold(flow.Topology, findings[0].String())
	a.askForLook()
}

// unroutable is told that a publication found no queue. Whatever else would be taken could not leave either.
func (a *App) unroutable(exchange, key string) {
	a.take(routes, []topology.Finding{a.plan.Unroutable(exchange, key)})
	a.askForLook()
}

// askForLook has the topology looked at soon: something was missing, or a message found no queue.
func (a *App) askForLook() {
	select {
	case a.look <- struct{}{}:
	default:
	}
}

// repair looks at the topology again as soon as something is missing, and now and then. A route is only seen when it is
// used: where it is not made anew by looking, messages have to try it again after a while.
func (a *App) repair(ctx context.Context, s *broker.Session) error {
	t := time.NewTicker(a.checkEvery)
	defer t.Stop()
	declares := a.cfg.Topology.Mode == string(topology.ModeDeclare)
	for {
		again := declares
		select {
		case <-a.look:
		case <-t.C:
			if !a.fits.bad() && !declares {
				continue
			}
			again = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := a.ensure(ctx, s); err != nil {
			return err
		}
		if again {
			a.take(routes, nil)
		}
	}
}

// ensureFirst is ensure at the start of a session. A topology that fits takes one round trip, whatever its size. A
// broker that refused some of it once, or took too long over all of it together, is asked one by one ever after.
func (a *App) ensureFirst(ctx context.Context, s *broker.Session) error {
	if !a.oneByOne {
		if topology.EnsureAtOnce(ctx, s, a.plan, topology.Mode(a.cfg.Topology.Mode)) {
			a.take(objects, nil)
			return nil
		}
		// A session that stands was told no. One that ended may have been cut, or have taken too long: that is found out
		// by trying once more.
		a.atOnce++
		a.oneByOne = s.Err() == nil || a.atOnce > 1
	}
	return a.ensure(ctx, s)
}

// ensure declares or verifies the topology and shuts the gate while it does not fit.
func (a *App) ensure(ctx context.Context, s *broker.Session) error {
	findings, err := topology.Ensure(ctx, s, a.plan, topology.Mode(a.cfg.Topology.Mode))
	if err != nil {
		return err
	}
	a.take(objects, findings)
	return nil
}

// take acts on what a look at the topology has found.
func (a *App) take(of aspect, findings []topology.Finding) {
	if a.fits.set(of, findings) {
		for _, f := range findings {
			a.log.Error("topology does not fit", "object", f.Object, "problem", string(f.Problem), "wanted", f.Wanted,
				"found", f.Found, "fix", f.Fix)
		}
	}
	if all, _ := a.fits.last(); len(all) > 0 {
		a.flow.Hold(flow.Topology, all[0].String())
	} else if a.flow.Lift(flow.Topology) {
		a.log.Info("topology fits", "queue", a.plan.Queue)
	}
}

// mayPublish looks, for every connection that publishes, whether the user may publish what is retried and parked. While
// it may not, nothing is consumed: a message could not leave.
func (a *App) mayPublish(ctx context.Context, s *broker.Session) (beside func(), err error) {
	check, err := a.publishCheck(ctx, s)
	if err != nil {
		return nil, err
	}
	return func() {
		for {
			findings, err := check.Run(ctx)
			if err != nil {
				return // the session has ended
			}
			if a.take(publishing, findings); len(findings) == 0 {
				return
			}
			select {
			case <-time.After(a.checkEvery): // rights may have been given meanwhile
			case <-ctx.Done():
				return
			}
			if check, err = a.publishCheck(ctx, s); err != nil {
				return
			}
		}
	}, nil
}

func (a *App) publishCheck(ctx context.Context, s *broker.Session) (*topology.PublishCheck, error) {
	return topology.NewPublishCheck(ctx, s, a.plan, topology.Mode(a.cfg.Topology.Mode))
}
