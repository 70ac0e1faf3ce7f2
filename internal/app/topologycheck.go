package app

import (
	"context"
	"slices"
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
		if ctx.Err() == nil { // the error of a connection that was lost is not about the queue
			s.consumer.Refused(err)
		}
		return err
	}
	// The check after a returned publication may have ended with the session before. The check just made replaces it: a
	// route that it did not repair shows again at the next publication.
	s.routesMu.Lock()
	s.reportReturned()
	s.routesMu.Unlock()
	s.report(delays, nil)
	s.session.Store(link)
	ctx, cancel := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		err := s.watch(ctx, link)
		if ctx.Err() == nil {
			link.Kill() // without its checks the session must not go on
			return err
		}
		return nil
	})
	group.Go(func() error {
		defer cancel()
		return s.consume(ctx, link)
	})
	return group.Wait()
}

// missing pauses consuming when a measurement finds that objects are gone, and has a check declare or report them.
// Objects that a check has reported already need neither. Mode none goes on: there a missing object is a finding only
// when a publication needed it.
func (s *subscription) missing(findings []declare.Finding) {
	mode := modeOf(s.cfg)
	if mode == topology.ModeNone {
		s.routesMu.Lock()
		defer s.routesMu.Unlock()
		s.explainByAbsent(findings)
		return
	}
	reported, _ := s.status.last()
	for _, f := range findings {
		if slices.ContainsFunc(reported, func(r declare.Finding) bool { return r.About(f.Object) }) {
			continue
		}
		if mode == topology.ModeDeclare && f.Declared {
			f.Fix = "" // the check tries it, and reports why that failed
		}
		s.publishRetries()
		s.flow.Hold(flow.Topology, f.String())
		ask(s.check)
	}
}

// publishRetries makes the messages in flight leave by publish, if they fail, until a check has found the topology in
// order: without its queue a reject would lose the message.
func (s *subscription) publishRetries() { s.current.Store(s.current.Load().WithoutReject()) }

// checkCounts is how long after its begin a check counts: until then a message may be rejected without another check.
const checkCounts = time.Second

// requestCheck asks for a check of the topology, unless the last one began less than checkCounts ago: then it returns
// nil. Otherwise it returns a channel that is closed at the end of a check. The consumer calls it before each reject,
// because the broker does not report that it drops a rejected message where its exchange, queue or binding is missing.
// checkMissing calls it when the broker refuses a call because an object is missing, or returns a message that the plan
// routes.
func (s *subscription) requestCheck() <-chan struct{} {
	s.checkMu.Lock()
	defer s.checkMu.Unlock()
	if time.Since(s.checkedAt) < checkCounts {
		return nil
	}
	if s.pending == nil {
		s.pending = make(chan struct{})
	}
	ask(s.check)
	return s.pending
}

// checked records the end of a check that began at that time.
func (s *subscription) checked(begun time.Time) {
	s.checkMu.Lock()
	defer s.checkMu.Unlock()
	if s.checkedAt = begun; s.pending != nil {
		close(s.pending)
		s.pending = nil
	}
}

// undelayed pauses consuming until the next check: the next message might return at once, too.
func (s *subscription) undelayed() {
	s.report(delays, []declare.Finding{declare.Undelayed(s.current.Load())})
}

// watch checks the topology and measures its queues, each when it is asked to, and the queues at once. Every checkEvery
// it measures them, checks a topology with findings again, and declares a declared one again, because a deleted binding
// shows in no other way. A missing route shows only when used: unless declaring restores it, messages have to try it
// again after a while.
func (s *subscription) watch(ctx context.Context, link *broker.Session) error {
	t := time.NewTicker(s.checkEvery)
	defer t.Stop()
	defer s.measured.Store(nil) // old depths would look current
	ask(s.measure)
	for {
		periodic := false
		select {
		case <-s.check:
			if err := s.ensure(ctx, link); err != nil {
				return err
			}
			continue
		case <-s.measure:
		case <-t.C:
			periodic = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.measureQueues(ctx, link); err != nil {
			return err
		}
		if periodic && (s.status.bad() || modeOf(s.cfg) == topology.ModeDeclare) {
			if err := s.ensure(ctx, link); err != nil {
				return err
			}
			s.retryRoute()
			s.report(delays, nil)
		}
	}
}

// measureQueues counts the messages in the queues, and reports missing objects and a consumer that the broker does not
// have any more.
func (s *subscription) measureQueues(ctx context.Context, link *broker.Session) error {
	begun, before := time.Now(), s.consumer.Registered()
	m, err := declare.Measure(ctx, link, s.current.Load())
	if err != nil {
		return err
	}
	s.measured.Store(&m.Depths)
	s.sightings.Measured(m.Depths, begun)
	s.reportCancelled(m.Missing)
	s.missing(m.Missing)
	after := s.consumer.Registered()
	if !m.Unconsumed {
		before, after = nil, nil
	}
	if s.unconsumed.see(before, after, begun, s.checkEvery/2) {
		before.Lost()
	}
	return nil
}

// ensure declares or verifies the topology, and keeps the gate shut while something blocks. The plan of the last check
// is compared in one round trip, whatever the size of the topology. After that has failed, the objects are checked, and
// missing ones declared, one at a time until they fit.
func (s *subscription) ensure(ctx context.Context, link *broker.Session) error {
	begun := time.Now()
	plan := s.found
	s.found = nil // also if the session ends: the broker may take too long over all at once
	if plan != nil && declare.Compare(ctx, link, plan, modeOf(s.cfg)) {
		s.use(plan)
		s.reportRedeclared(s.sightings.Checked(plan, nil, begun))
		s.checked(begun)
		s.report(objects, s.status.tolerated())
		s.explainReturned(nil, nil, begun)
		return nil
	}
	r, err := declare.Ensure(ctx, link, s.plan, modeOf(s.cfg))
	s.reportRedeclared(s.sightings.Declared(&r, begun))
	if err != nil {
		return err
	}
	s.reportRedeclared(s.sightings.Checked(r.Plan, r.Findings, begun))
	if len(r.Blocking()) == 0 {
		s.use(r.Plan)
	} else {
		s.publishRetries()
	}
	s.checked(begun)
	s.report(objects, r.Findings)
	s.explainReturned(r.Findings, r.Undeclared, begun)
	return nil
}

// reportRedeclared logs the objects that were deleted and declared again. The bindings of others are deleted with an
// exchange, so every subscription declares its own.
func (s *subscription) reportRedeclared(again []declare.Redeclared) {
	for _, d := range again {
		log := s.log.With("object", d.Object, "kind", string(d.Kind), "lost_since", d.LostSince, "reason", d.Reason())
		if d.LastDepth != nil {
			log = log.With("last_depth", *d.LastDepth, "depth_age", d.Age())
		}
		if d.Waiting != nil {
			log = log.With("waiting", *d.Waiting)
		}
		if d.Kind == declare.KindExchange {
			log.Error("exchange declared again")
		} else {
			log.Error("queue declared again")
		}
	}
	if len(again) > 0 {
		s.each(func(other *subscription) { ask(other.check) })
	}
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
	} else if !s.unexplained.Load() && s.flow.Lift(flow.Topology) {
		s.log.Info("topology fits")
	}
}

// checkPublishing checks on every connection that publishes whether the user may publish retries and parked messages.
// While the user may not, nothing is consumed: a message could not leave.
func (s *subscription) checkPublishing(ctx context.Context, link *broker.Session) error {
	for {
		findings, err := declare.MayPublish(ctx, link, s.plan, modeOf(s.cfg))
		if err == nil {
			if s.report(publishing, findings); len(findings) == 0 {
				return nil
			}
		}
		select {
		case <-time.After(s.checkEvery): // an alarm may be over then, or the rights be given
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
