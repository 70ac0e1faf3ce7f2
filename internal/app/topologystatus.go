package app

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// aspect is one kind of check of the topology.
type aspect uint8

const (
	objects    aspect = iota // exchanges, queues and bindings: on the connection that consumes
	publishing               // whether the user may publish: on the connection that publishes
	routes                   // a publication that reached no queue
	delays                   // a rejected message that was delivered again at once
	aspects
)

// topologyStatus holds the findings of the last checks.
type topologyStatus struct {
	mu       sync.Mutex
	checked  bool // the objects
	findings [aspects][]declare.Finding
}

// set stores the findings of one aspect and reports whether they have changed.
func (t *topologyStatus) set(of aspect, findings []declare.Finding) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	changed := !slices.Equal(t.findings[of], findings)
	t.checked = t.checked || of == objects
	t.findings[of] = findings
	return changed
}

func (t *topologyStatus) bad() bool {
	all, _ := t.last()
	return len(all) > 0
}

// last returns the findings of all aspects by which nothing is consumed, and whether the objects have been checked yet.
func (t *topologyStatus) last() (findings []declare.Finding, checked bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return declare.Blocking(slices.Concat(t.findings[:]...)), t.checked
}

// tolerated returns what is not as planned and is used all the same.
func (t *topologyStatus) tolerated() []declare.Finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(t.findings[objects]), func(f declare.Finding) bool {
		return f.Judgement == topology.Breaks
	})
}

// consume records whether the broker ended the consumer.
func (s *subscription) consume(ctx context.Context, link *broker.Session) error {
	err := s.consumer.Serve(ctx, link, s.current.Load)
	if errors.Is(err, broker.ErrCancelled) {
		s.cancelled.Store(true)
	}
	return err
}

// unconsumed is a consumer of this process that the broker did not have at a measurement. RabbitMQ 3.10 sends no
// basic.cancel for some queues that are deleted and declared again at once.
type unconsumed struct {
	consumer *broker.Consumer // nil: none
	since    time.Time
}

// see records a measurement that began at that time and reports whether the consumer is lost. before and after are the
// consumers that were registered then, if the broker did not have one, else nil. One measurement alone may be wrong,
// and measurements on request follow one another at once, so it takes another one, at least gap later, that finds the
// same.
func (u *unconsumed) see(before, after *broker.Consumer, begun time.Time, gap time.Duration) (lost bool) {
	switch {
	case before != after: // it may have been registered after the broker answered
		*u = unconsumed{}
	case before == nil || before != u.consumer:
		*u = unconsumed{before, begun}
	default:
		lost = begun.Sub(u.since) >= gap
	}
	return lost
}

// reportCancelled logs, after the broker has ended the consumer, that the queue exists although this process has not
// declared it again. It is not a Redeclared: the broker gives no reason, and a deletion is only one of several.
func (s *subscription) reportCancelled(missing []declare.Finding) {
	title := topology.QueueTitle(s.plan.Queue)
	if !s.cancelled.Swap(false) ||
		slices.ContainsFunc(missing, func(f declare.Finding) bool { return f.Object == title }) ||
		slices.ContainsFunc(s.sightings.Recent(), func(r declare.Redeclared) bool {
			return r.Object == title && time.Since(r.At) < time.Minute // the line "queue declared again" has reported it
		}) {
		return
	}
	s.log.Warn("consumer cancelled", "reason", "if another client has deleted the queue and declared it again, its "+
		"messages are lost; a node that was away and consumer_timeout cancel a consumer, too")
}
