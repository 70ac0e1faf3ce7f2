package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/consume"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// subscription is everything that belongs to one queue that is consumed: its plan, the gate, the consumer with its
// channel, and the checks of the topology.
type subscription struct {
	shared

	plan    *topology.Plan
	found   *topology.Plan                // plan as the broker was found, at first as it is; nil: it does not fit
	current atomic.Pointer[topology.Plan] // what settles: the last one found, and plan before that
	seen    atomic.Bool                   // current was found in the broker
	warned  []string                      // warnings about the topology that were logged last
	log     *slog.Logger                  // adds the field queue
	metrics prometheus.Registerer         // adds the label queue

	target   *dispatch.Target
	flow     *flow.Control
	consumer *consume.Consumer

	sightings  *declare.Sightings
	measured   atomic.Pointer[[]declare.Depth] // of the queues, by the last measurement of the session; nil: none
	unconsumed unconsumed

	checkEvery time.Duration // declare.DefaultEvery; tests shorten it before run
	check      chan struct{} // asks for a check of the topology; capacity 1
	measure    chan struct{} // asks for the depths of the queues; capacity 1
	status     topologyStatus

	routesMu    sync.Mutex
	absent      []declare.Finding // objects that the last measurement missed in mode none
	returned    *returned         // the last publication that reached no queue; nil: forgotten
	unexplained atomic.Bool       // no check that began after it has ended

	checkMu   sync.Mutex
	checkedAt time.Time     // when the last check began
	pending   chan struct{} // closed at the end of the next check; nil: nothing waits for it

	session  atomic.Pointer[broker.Session] // the last one on which the topology was checked; nil: none yet
	isolated atomic.Bool                    // it has a consume connection of its own, see isolate
	// cancelled: the broker has ended the consumer, and the queue was not measured since.
	cancelled atomic.Bool
}

// newSubscription builds the subscription that cfg describes, with what it shares with others. Its deliveries take
// memory; nil: that of the connection. It opens no connection.
func newSubscription(
	sh shared, cfg *config.Config, plan *topology.Plan, memory *budget.Account,
) (*subscription, error) {
	sh.cfg, sh.tracing = cfg, sh.tracing.ForQueue(plan.Queue, cfg.App.URL)
	s := &subscription{
		shared: sh, plan: plan, found: plan, log: sh.log.With("queue", plan.Queue),
		metrics:    prometheus.WrapRegistererWith(prometheus.Labels{"queue": plan.Queue}, sh.registry),
		checkEvery: declare.DefaultEvery, check: make(chan struct{}, 1), measure: make(chan struct{}, 1),
	}
	s.current.Store(plan)
	s.warned = s.topologyWarnings()
	var err error
	if s.target, err = dispatch.New(s.dispatchOptions()); err != nil {
		return nil, err
	}
	s.flow = flow.New(s.flowOptions())
	s.sightings = declare.NewSightings(s.redeclared, func() (int, bool) { return s.consumer.Forget() })
	s.consumer = consume.New(consume.Options{
		Plan: plan, Policy: newPolicy(cfg), Concurrency: cfg.Window.Concurrency, Prefetch: cfg.Window.Prefetch,
		LongPrefetch: cfg.LongPrefetch,
		Attempt:      cfg.App.Timeout, Unroutable: s.unroutable, Undelayed: s.undelayed, RequestCheck: s.requestCheck,
		Memory: memory,
		Rates:  s.limits.rates, Slots: s.limits.slots, OrderBy: cfg.Retry.OrderBy,
		Dispatcher: s.target, Batch: s.batchOptions(), Publisher: sh.publisher.Share(), Flow: s.flow, Tracing: s.tracing,
		Logger: s.log, Registerer: s.metrics,
	})
	return s, nil
}

// warnings are about the settings of the subscription, and what its topology was found to be. Known ones are left out.
func (s *subscription) warnings(known []string) []string {
	all := s.topologyWarnings()
	for _, f := range s.status.tolerated() {
		if f.Judgement == topology.Weaker {
			all = append(all, f.String())
		}
	}
	for _, r := range s.sightings.Recent() {
		all = append(all, r.String())
	}
	if text := s.consumer.Oversized(); text != "" {
		all = append(all, text)
	}
	return slices.DeleteFunc(all, func(text string) bool { return slices.Contains(known, text) })
}

// topologyWarnings are about the topology as the broker was found; before the first check only what holds in any case.
func (s *subscription) topologyWarnings() []string {
	plan := s.current.Load()
	texts, _ := plan.WarningsUnasked()
	if s.seen.Load() {
		texts = plan.Warnings()
	}
	return topologyWarnings(s.cfg, plan, texts)
}

// use settles by a plan that was found, and logs the warnings that are new with it.
func (s *subscription) use(found *topology.Plan) {
	s.found = found
	s.current.Store(found)
	s.seen.Store(true)
	all := s.topologyWarnings()
	for _, text := range all {
		if !slices.Contains(s.warned, text) {
			s.log.Warn("configuration", "warning", text)
		}
	}
	s.warned = all
}

// unpublished reports messages that could not be parked or published to wait so far; "" without any.
func (s *subscription) unpublished() string {
	if n := s.consumer.Unpublished(); n > 0 {
		return fmt.Sprintf("%d messages wait for a park or retry publish that failed", n)
	}
	return ""
}

// connected reports whether the consume connection is up and the topology was checked on it. Whether the queue can be
// consumed is another question.
func (s *subscription) connected() bool {
	session := s.session.Load()
	return session != nil && session.Err() == nil
}

// held reports whether a reason keeps messages from being taken.
func (s *subscription) held() bool { return !s.flow.Open() || s.flow.Has(flow.Queue) }

// taking reports whether messages are taken when they arrive.
func (s *subscription) taking() bool { return !s.held() && s.consumer.Begun() }

func (s *subscription) close() {
	s.target.Close()
}

// abandon ends a subscription that has not run.
func (s *subscription) abandon() {
	s.consumer.Drain(context.Background())
	s.close()
}

// drain stops consuming, finishes the messages in flight within the grace, and requeues the rest.
func (s *subscription) drain(t stopTime) {
	ctx, cancel := context.WithDeadlineCause(context.Background(), t.until, consume.ErrGrace)
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	defer context.AfterFunc(t.now, func() { interrupt(consume.ErrNow) })()
	d := s.consumer.Drain(ctx)
	switch {
	case ctx.Err() == nil:
		s.log.Info("drained", "released", d.Interrupted, "returned", d.Returned)
	case errors.Is(context.Cause(ctx), consume.ErrNow):
		s.log.Warn("stopped at once", "released", d.Interrupted, "returned", d.Returned)
	default:
		s.log.Warn("grace expired", "released", d.Interrupted, "returned", d.Returned)
	}
}

// ask makes the reader of a channel with capacity 1 act without waiting for its next turn.
func ask(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
