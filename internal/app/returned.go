package app

import (
	"fmt"
	"slices"
	"time"

	"sidecar/internal/flow"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// unroutable pauses consuming after a publication that reached no queue: the next one would not reach it either. The
// check that follows reports why, see explainReturned; in mode none a measurement does.
func (s *subscription) unroutable(exchange, key string, err error) {
	s.routesMu.Lock()
	s.returned = &returned{exchange, key, err, time.Now()}
	s.unexplained.Store(true)
	s.routesMu.Unlock()
	if !s.status.bad() {
		s.flow.Hold(flow.Topology, fmt.Sprintf("a message published to exchange %q with key %q was returned: checking why",
			exchange, key))
	}
	ask(s.check)
	ask(s.measure)
}

// returned is a publication that reached no queue.
type returned struct {
	exchange, key string
	err           error
	at            time.Time
}

// finding is about r: the one of known that is about an object of its route, if there is one.
func (r *returned) finding(s *subscription, known []declare.Finding) declare.Finding {
	return declare.Unroutable(s.current.Load(), r.exchange, r.key, r.err, known)
}

// reportReturned reports findings about the last returned publication; without any it is forgotten. routesMu is locked.
func (s *subscription) reportReturned(findings ...declare.Finding) {
	if s.unexplained.Store(false); len(findings) == 0 {
		s.returned = nil
	}
	s.report(routes, findings)
}

// explainReturned reports, after a check that began at that time, why a publication before it was returned, unless one
// of the check's findings says so. In mode declare the check has declared everything, except what the user may not.
func (s *subscription) explainReturned(findings, undeclared []declare.Finding, begun time.Time) {
	s.routesMu.Lock()
	defer s.routesMu.Unlock()
	mode, r := modeOf(s.cfg), s.returned
	if r == nil || mode == topology.ModeNone || r.at.After(begun) {
		return
	}
	f := r.finding(s, slices.Concat(findings, undeclared))
	if slices.Contains(findings, f) || mode == topology.ModeDeclare && !slices.Contains(undeclared, f) {
		s.reportReturned()
	} else {
		s.reportReturned(f)
	}
}

// explainByAbsent is explainReturned for mode none, by the objects that a measurement missed. When the object that
// explained the publication is there again, another one tries the route. routesMu is locked.
func (s *subscription) explainByAbsent(absent []declare.Finding) {
	before, r := s.absent, s.returned
	if s.absent = absent; r == nil {
		return
	}
	f := r.finding(s, absent)
	if !s.unexplained.Load() && slices.Contains(before, r.finding(s, before)) && !slices.Contains(absent, f) {
		s.reportReturned()
	} else {
		s.reportReturned(f)
	}
}

// retryRoute forgets the last returned publication that was explained, so that another one tries its route, unless an
// object of that route is missing.
func (s *subscription) retryRoute() {
	s.routesMu.Lock()
	defer s.routesMu.Unlock()
	if s.returned != nil && !s.unexplained.Load() && !slices.Contains(s.absent, s.returned.finding(s, s.absent)) {
		s.reportReturned()
	}
}
