package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
)

// part is one piece of the running sidecar.
type part struct {
	name string
	run  func(context.Context) error // until its context ends; another error than that ends the sidecar
	stop func(stopTime)              // called before that context ends; may be nil
}

// sender publishes for the app. It is not needed to consume. Its publisher has a connection of its own: neither a
// channel that the broker closes nor a write that is cut off must disturb parking.
type sender struct {
	part
	publisher *broker.Publisher
	check     func() admin.Check // in the readiness. It is not a condition: consuming does not depend on it
}

// connected returns the part with its connection, which ends after the last batch or request.
func (s sender) connected() part {
	return part{s.name, func(ctx context.Context) error {
		link, unlink := context.WithCancel(context.WithoutCancel(ctx))
		var connection sync.WaitGroup
		connection.Go(func() { _ = s.publisher.Run(link) }) // returns only the end of link
		defer connection.Wait()
		defer unlink()
		if err := s.run(ctx); err != nil {
			return err
		}
		<-ctx.Done() // requests outlive their listener, which stop closes first
		return nil
	}, s.stop}
}

// stopTime says how long a stop may take.
type stopTime struct {
	until time.Time       // the shutdown grace is over
	now   context.Context // ends to end the stop at once
}

// start runs the parts in group. stop stops them side by side and logs each part whose stop and run have both ended;
// wait waits until their runs have ended.
func start(group *errgroup.Group, parts []part, log *slog.Logger) (stop func(stopTime), wait func()) {
	var runs sync.WaitGroup
	stops := make([]func(stopTime), len(parts))
	for i, p := range parts {
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		runs.Add(1)
		group.Go(func() error {
			defer runs.Done()
			defer close(ended)
			if err := p.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			return nil
		})
		stops[i] = func(t stopTime) {
			begun := time.Now()
			if p.stop != nil {
				p.stop(t)
			}
			cancel()
			group.Go(func() error {
				<-ended
				log.Debug("part stopped", "part", p.name, "duration_ms", float64(time.Since(begun))/float64(time.Millisecond))
				return nil
			})
		}
	}
	stop = func(t stopTime) {
		var all sync.WaitGroup
		for _, stop := range stops {
			all.Go(func() { stop(t) })
		}
		all.Wait()
	}
	return stop, runs.Wait
}

// Run serves until ctx ends, then drains; the end of now cuts the drain short. It returns nil after a drain, also one
// whose grace expired: only what the sidecar cannot do without (its listeners) is an error.
func (a *App) Run(ctx, now context.Context) error {
	limitMemory(MemoryLimit(), a.budget.Limit())
	if err := a.listen(); err != nil {
		a.abandon()
		return err
	}
	base, senders, consumers := a.parts()
	group, failed := errgroup.WithContext(context.Background())
	stopBase, _ := start(group, base, a.log)
	stopSenders, _ := start(group, senders, a.log)
	stopConsumers, waitConsumers := start(group, consumers, a.log)
	asked := false
	select {
	case <-ctx.Done():
	case <-a.drainAsk:
		asked = ctx.Err() == nil
	case <-failed.Done(): // a listener broke: drain, then report it
	}
	grace := a.cfg.Process.ShutdownGrace
	t := stopTime{until: time.Now().Add(grace), now: now}
	a.log.Info("draining", "inflight", inflight(a.subscriptions), "grace", grace)
	close(a.draining)
	stopConsumers(t)
	if len(consumers) == 0 {
		a.log.Info("drained", "returned", 0)
	}
	// The ends of connections to a broker that does not answer must not add up.
	go func() {
		waitConsumers()
		close(a.drained)
	}()
	// After POST /drain the app still runs and may publish, so the senders stop only at SIGTERM.
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	if asked {
		t.until = time.Now().Add(grace)
	}
	stopSenders(t)
	<-a.drained
	stopBase(t)
	err := group.Wait()
	a.flushTraces()
	a.log.Info("stopped")
	return err
}
