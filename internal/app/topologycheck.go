package app

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/broker"
	"sidecar/internal/flow"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// serve is one broker session: first the topology, then messages, because a message rejected without a binding for it
// is lost.
func (s *subscription) serve(ctx context.Context, link *broker.Session) error {
	if err := s.ensure(ctx, link); err != nil {
		return err
	}
	plan := cmp.Or(s.found, s.plan)
	// The check after a returned publication may have ended with the session before. The check just made replaces it: a
	// route that it did not repair shows again at the next publication.
	s.report(routes, nil)
	s.connected.Store(true)
	defer s.connected.Store(false)
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	checks := []func() error{
		func() error { return s.watcher.Watch(ctx, link, plan) },
		func() error { return s.repair(ctx, link, plan) },
	}
	for _, check := range checks {
		group.Go(func() error {
			err := check()
			if ctx.Err() == nil {
				link.Kill() // without its checks the session must not go on
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		defer cancel()
		return s.consumer.Serve(ctx, link, plan)
	})
	return group.Wait()
}

// missing takes the watcher's findings: objects that have gone since the last check.
func (s *subscription) missing(findings []declare.Finding) {
	if len(findings) == 0 || modeOf(s.cfg) == topology.ModeNone {
		return
	}
	s.flow.Hold(flow.Topology, findings[0].String())
	s.askForCheck()
}

// unroutable pauses consuming after a publication that reached no queue: the next one would not reach it either.
func (s *subscription) unroutable(exchange, key string) {
	s.report(routes, []declare.Finding{declare.Unroutable(s.plan, exchange, key)})
	s.askForCheck()
}

// askForCheck makes repair check the topology without waiting for its next turn.
func (s *subscription) askForCheck() {
	select {
	case s.check <- struct{}{}:
	default:
	}
}

// repair checks the topology when it is asked to. Every checkEvery it checks a topology with findings again, and
// declares a declared one again, because a deleted binding shows in no other way. A missing route shows only when used:
// unless declaring restores it, messages have to try it again after a while. A session settles by the plan that it
// began with, so it ends when another one fits.
func (s *subscription) repair(ctx context.Context, link *broker.Session, plan *topology.Plan) error {
	t := time.NewTicker(s.checkEvery)
	defer t.Stop()
	declares := modeOf(s.cfg) == topology.ModeDeclare
	for {
		again := declares
		select {
		case <-s.check:
		case <-t.C:
			if !s.status.bad() && !declares {
				continue
			}
			again = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.ensure(ctx, link); err != nil {
			return err
		}
		if again {
			s.report(routes, nil)
		}
		if s.found != nil && !reflect.DeepEqual(s.found, plan) {
			return errFoundOtherwise
		}
	}
}

// errFoundOtherwise ends a session because objects of the topology are not any more what they were at its start.
var errFoundOtherwise = errors.New("the topology has changed in the broker")

// ensure declares or verifies the topology, and keeps the gate shut while something blocks. What was found before is
// asked for in one round trip, whatever the size of the topology. After the broker has refused that once, or has taken
// too long over it, the objects are checked one at a time.
func (s *subscription) ensure(ctx context.Context, link *broker.Session) error {
	const tries = 2 // a session that ended may have had no time, or no network: one more try decides
	if s.atOnceFailures < tries {
		if declare.EnsureAtOnce(ctx, link, cmp.Or(s.found, s.plan), modeOf(s.cfg)) {
			s.report(objects, s.status.tolerated())
			s.found = cmp.Or(s.found, s.plan)
			return nil
		}
		if s.atOnceFailures++; link.Err() == nil { // the broker has refused an object
			s.atOnceFailures = tries
		}
	}
	r, err := declare.Ensure(ctx, link, s.plan, modeOf(s.cfg))
	if err != nil {
		return err
	}
	if s.found = nil; len(r.Blocking()) == 0 {
		s.found, s.atOnceFailures = r.Plan, 0
	}
	s.report(objects, r.Findings)
	return nil
}

// report logs the findings of a check and opens or shuts the gate.
func (s *subscription) report(of aspect, findings []declare.Finding) {
	if s.status.set(of, findings) {
		for _, f := range findings {
			log := s.log.With("object", f.Object, "problem", string(f.Problem), "wanted", f.Wanted, "found", f.Found,
				"reason", f.Reason, "fix", f.Fix)
			switch f.Judgement {
			case topology.Breaks:
				log.Error("topology does not fit")
			case topology.Weaker:
				log.Warn("topology differs")
			default:
				log.Info("topology differs")
			}
		}
	}
	if all, _ := s.status.last(); len(all) > 0 {
		s.flow.Hold(flow.Topology, all[0].String())
	} else if s.flow.Lift(flow.Topology) {
		s.log.Info("topology fits")
	}
}

// checkPublishing checks on every connection that publishes whether the user may publish retries and parked messages.
// While the user may not, nothing is consumed: a message could not leave.
func (s *subscription) checkPublishing(ctx context.Context, link *broker.Session) (beside func(), err error) {
	check, err := declare.NewPublishPreflight(ctx, link, s.plan, modeOf(s.cfg))
	if err != nil {
		return nil, err
	}
	return func() {
		for {
			findings, err := check.Run(ctx)
			if err != nil {
				return // the session has ended
			}
			if s.report(publishing, findings); len(findings) == 0 {
				return
			}
			select {
			case <-time.After(s.checkEvery): // the rights may be given meanwhile
			case <-ctx.Done():
				return
			}
			if check, err = declare.NewPublishPreflight(ctx, link, s.plan, modeOf(s.cfg)); err != nil {
				return
			}
		}
	}, nil
}
