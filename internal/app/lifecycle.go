package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of the steps after the drain.
const (
	adminStop = 2 * time.Second
	flushStop = 3 * time.Second
)

// part is one piece of the running sidecar.
type part struct {
	name string
	run  func(context.Context) error // until its context ends; an error ends the sidecar
	stop func(stopTime)              // called before that context ends; may be nil

	cancel context.CancelFunc
	ended  chan struct{} // closed when run has returned
}

// stopTime says how long a stop may take.
type stopTime struct {
	until time.Time       // the shutdown grace is over
	now   <-chan struct{} // closed to end the stop at once
}

// start runs the parts in group.
func start(group *errgroup.Group, parts []*part) {
	for _, p := range parts {
		ctx, cancel := context.WithCancel(context.Background())
		p.cancel, p.ended = cancel, make(chan struct{})
		group.Go(func() error {
			defer close(p.ended)
			if err := p.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			return nil
		})
	}
}

// stop stops the parts side by side. It does not wait for the end of their runs.
func stop(parts []*part, t stopTime) {
	var stops sync.WaitGroup
	for _, p := range parts {
		stops.Go(func() {
			if p.stop != nil {
				p.stop(t)
			}
			p.cancel()
		})
	}
	stops.Wait()
}

// withoutCancel returns nil for the end of our own context.
func withoutCancel(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// Run serves until ctx ends, then drains; now cuts the drain short. It returns nil after a drain, also one whose
// grace expired: only what the sidecar cannot do without (its listeners) is an error.
func (a *App) Run(ctx context.Context, now <-chan struct{}) error {
	limitMemory(MemoryLimit(), a.budget.Limit())
	addrs, publishAddr, err := a.listen()
	if err != nil {
		for _, s := range a.subscriptions {
			s.abandon()
		}
		return err
	}
	a.announce(addrs, publishAddr)

	base, senders, consumers := a.parts()
	group, failed := errgroup.WithContext(context.Background())
	start(group, slices.Concat(base, senders, consumers))
	select {
	case <-ctx.Done():
	case <-a.drainAsk:
	case <-failed.Done(): // a listener broke: drain, then report it
	}
	asked := ctx.Err() == nil
	grace := a.cfg.Process.ShutdownGrace
	t := stopTime{until: time.Now().Add(grace), now: now}
	a.log.Info("draining", "inflight", a.inflight(), "grace", grace)
	close(a.draining)
	stop(consumers, t)
	if len(consumers) == 0 {
		a.log.Info("drained", "returned", 0)
	}
	go func() {
		for _, p := range consumers {
			<-p.ended
		}
		close(a.drained)
	}()
	// A drain that was asked for comes before the app's own end: until then the app may publish.
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	if asked {
		t.until = time.Now().Add(grace)
	}
	stop(senders, t)
	<-a.drained
	stop(base, t)
	err = group.Wait()
	a.flushTraces()
	a.log.Info("stopped")
	return err
}
