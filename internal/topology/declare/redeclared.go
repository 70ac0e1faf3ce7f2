package declare

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/topology"
)

// KindExchange is the kind of an exchange beside the kinds of queues.
const KindExchange topology.Kind = "exchange"

const (
	// shownFor is how long a Redeclared is shown.
	shownFor = time.Hour

	// maxShown bounds the deletions that are shown of one subscription, for a script that deletes again and again. Beyond
	// it the oldest is left out.
	maxShown = 100
)

// Redeclared is an object that was deleted and declared again: by a check, although an earlier one of this process had
// found it, or by another client after a check had missed it, or with other properties than it had. Bindings are not
// reported: the broker answers the same whether it made one.
type Redeclared struct {
	Object    string        `json:"object"`     // e.g. `queue "wms.queue.wms-cincout"`
	Kind      topology.Kind `json:"kind"`       // of a queue its kind, or KindExchange
	At        time.Time     `json:"at"`         // when this process declared it or found it again; see sighting.lost
	LostSince time.Time     `json:"lost_since"` // the last time that the object was known to exist

	// LastDepth is how many messages were ready in a queue at MeasuredAt; nil: not measured.
	LastDepth  *int      `json:"last_depth,omitempty"`
	MeasuredAt time.Time `json:"measured_at,omitzero"`

	// Waiting is how many messages that this process had rejected the queue delayed; nil: it delays none, or not this one.
	Waiting *int `json:"waiting,omitempty"`
}

// Reason says what that comes to. A depth that was not measured since the deletion before is unknown, not 0.
func (r *Redeclared) Reason() string {
	s := "messages may be lost since " + r.LostSince.Format(time.RFC3339)
	switch {
	case r.LastDepth != nil:
		s += fmt.Sprintf("; %d were ready in it %v before", *r.LastDepth, r.Age())
	case r.Kind != KindExchange:
		s += "; how many were ready in it is unknown"
	}
	if r.Waiting != nil && *r.Waiting > 0 {
		s += fmt.Sprintf("; it delayed %d that this process had rejected", *r.Waiting)
	}
	return s
}

// String is a sentence for people.
func (r *Redeclared) String() string {
	return fmt.Sprintf("%s (%s) was deleted and was declared again at %s: %s", r.Object, r.Kind,
		r.At.Format(time.RFC3339), r.Reason())
}

func old(d Redeclared) bool { return time.Since(d.At) >= shownFor }

// Age is how old the last measured depth was at At.
func (r *Redeclared) Age() time.Duration { return r.At.Sub(r.MeasuredAt).Round(time.Second) }

// RedeclaredTotal counts the deletions that the subscriptions of a process noticed, by kind.
type RedeclaredTotal struct {
	*prometheus.CounterVec

	mu   sync.Mutex
	last map[string]time.Time // when an object was declared again last, by title
}

// NewRedeclaredTotal registers the metric.
func NewRedeclaredTotal(r prometheus.Registerer) *RedeclaredTotal {
	total := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "sidecar_objects_redeclared_total",
		Help: "Queues and exchanges that were deleted while the sidecar ran and declared again, by it or, where it may " +
			"not, by another client: messages may be lost.",
	}, []string{"kind"})
	for _, kind := range []topology.Kind{topology.KindMain, topology.KindRetry, topology.KindDLQ, KindExchange} {
		total.WithLabelValues(string(kind))
	}
	r.MustRegister(total)
	return &RedeclaredTotal{CounterVec: total, last: map[string]time.Time{}}
}

// count counts d, which was missing in a check that began at that time. It returns false if the check of another
// subscription has counted the same deletion.
func (t *RedeclaredTotal) count(d *Redeclared, begun time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last[d.Object].After(begun) {
		return false
	}
	t.last[d.Object] = d.At
	t.WithLabelValues(string(d.Kind)).Inc()
	return true
}

// Sightings remembers when the objects of one subscription were known to exist, over all sessions of the process. A
// measurement must not run beside a check: the report of a deletion has the depth of the queue before.
type Sightings struct {
	total  *RedeclaredTotal
	forget func() (waited int, delays bool)

	mu    sync.Mutex
	seen  map[string]*sighting // by title
	again []Redeclared         // at most maxShown, in the order of the time
}

// sighting is the last time that an object was known to exist, and the last depth of a queue.
type sighting struct {
	at, measured time.Time
	ready        int

	compared compared

	// lost is not nil while the object is missing. Its At is when the check that missed the object first began; back
	// replaces it.
	lost *Redeclared
}

// NewSightings returns Sightings that know no object. total counts what is declared again. forget is called when the
// queue that is consumed was deleted; it returns how many messages the queue delayed, if it delays any. It must not
// block.
func NewSightings(total *RedeclaredTotal, forget func() (waited int, delays bool)) *Sightings {
	return &Sightings{total: total, forget: forget, seen: map[string]*sighting{}}
}

// Checked records a check of p that began at that time: each object exists unless a finding says that it is missing or
// was not seen. It counts and returns the deleted ones that another client has declared again.
func (s *Sightings) Checked(p *topology.Plan, findings []Finding, at time.Time) (again []Redeclared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range objects(p) {
		if !slices.ContainsFunc(findings, func(f Finding) bool {
			return f.Problem != ProblemDrift && f.About(o.title)
		}) {
			again = append(again, s.back(o.title)...)
			s.sight(o.title).checked(&o, at)
		}
	}
	return again
}

// sight returns the entry of an object. mu is locked.
func (s *Sightings) sight(title string) *sighting {
	e := s.seen[title]
	if e == nil {
		e = &sighting{}
		s.seen[title] = e
	}
	return e
}

// Measured records the depths of queues.
func (s *Sightings) Measured(depths []Depth, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, d := range depths {
		if e := s.sight(topology.QueueTitle(d.Queue)); e.lost == nil { // otherwise a check reports first that it is back
			e.at, e.measured, e.ready = at, at, d.Ready
		}
	}
}

// Declared counts and returns the objects that were known to exist and that a check, which began at that time, had to
// declare. The findings of those that it could not declare get the deletion as their reason. It has to be called before
// Checked records the same check.
func (s *Sightings) Declared(r *Report, begun time.Time) (again []Redeclared) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range r.declared {
		s.lose(&o, begun)
		again = append(again, s.back(o.title)...)
	}
	for _, o := range objects(r.Plan) {
		again = append(again, s.replaced(&o, r.found)...)
		if !r.missing[o.title] {
			continue
		}
		if d := s.lose(&o, begun); d != nil {
			explain(r.Findings, d)
		}
	}
	return again
}

// explain adds a deletion to the reasons of the findings about the object, each of which may be about others, too.
func explain(all []Finding, d *Redeclared) {
	for i := range all {
		f := &all[i]
		if !f.About(d.Object) {
			continue
		}
		if f.Reason != "" {
			f.Reason += "; "
		}
		subject := "it"
		if f.Object != d.Object {
			subject = d.Object
		}
		f.Reason += subject + " was deleted: " + d.Reason()
	}
}

// lose returns the loss of an object that a check found missing; nil if the object was not known to exist. mu is
// locked.
func (s *Sightings) lose(o *object, begun time.Time) *Redeclared {
	e := s.seen[o.title]
	switch {
	case e == nil:
		return nil
	case e.lost != nil:
		return e.lost
	}
	e.lost = &Redeclared{Object: o.title, Kind: KindExchange, At: begun.UTC(), LostSince: e.at.UTC()}
	if o.queue != nil {
		e.lost.Kind = o.queue.Kind
	}
	if !e.measured.IsZero() {
		ready := e.ready
		e.lost.LastDepth, e.lost.MeasuredAt = &ready, e.measured.UTC()
	}
	if e.lost.Kind == topology.KindMain {
		if n, delays := s.forget(); delays {
			e.lost.Waiting = &n
		}
	}
	return e.lost
}

// back ends the loss of an object that exists again. It counts and returns the loss, unless there was none. mu is
// locked.
func (s *Sightings) back(title string) []Redeclared {
	e := s.seen[title]
	if e == nil || e.lost == nil {
		return nil
	}
	delete(s.seen, title)
	d := *e.lost
	d.At = time.Now().UTC()
	if !s.total.count(&d, e.lost.At) {
		return nil
	}
	s.add(d)
	return []Redeclared{d}
}

// add keeps d, and drops the deletions that are older than shownFor or too many. mu is locked.
func (s *Sightings) add(d Redeclared) {
	s.again = append(slices.DeleteFunc(s.again, old), d)
	s.again = slices.Delete(s.again, 0, max(len(s.again)-maxShown, 0))
}

// Recent returns one Redeclared for each deletion of the last hour, in the order of the time.
func (s *Sightings) Recent() []Redeclared {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.again), old)
}
