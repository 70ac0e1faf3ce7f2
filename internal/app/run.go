package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/consume"
)

// Bounds of the steps after the drain.
const (
	adminStop = 2 * time.Second
	flushStop = 3 * time.Second
)

// Run serves until ctx ends, then drains; now cuts the drain short. It returns nil after a drain, also one whose
// grace expired: only what the sidecar cannot do without (its listeners) is an error.
func (a *App) Run(ctx context.Context, now <-chan struct{}) error {
	limitMemory(MemoryLimit(), a.budget.Limit())
	addrs, publishAddr, err := a.listen()
	if err != nil {
		a.consumer.Drain(context.Background()) // ends its workers: nothing was taken yet
		a.closeCrashGuard()
		return err
	}
	a.announce(addrs, publishAddr)

	serving, stopServing := context.WithCancel(context.Background()) // admin: up to the very end
	link, stopLink := context.WithCancel(context.Background())       // both connections and the probe
	sending, stopSending := context.WithCancel(context.Background()) // what the app sends: as long as there may be an app
	defer stopServing()
	defer stopLink()
	defer stopSending()
	group, failed := errgroup.WithContext(context.Background())
	group.Go(func() error { return a.admin.Serve(serving) })
	group.Go(func() error { return a.rest(link) })
	group.Go(func() error { return a.cores(link, coresInterval) })
	group.Go(func() error { return a.relay.run(sending) })
	a.endpoint.start(group)
	consuming := make(chan struct{})
	if !a.consumes() {
		close(consuming)
	} else {
		group.Go(func() error { return a.flow.Run(link) })
		group.Go(func() error { return ended(a.publisher.Run(link)) })
		group.Go(func() error {
			defer close(consuming)
			return ended(broker.Supervise(link, a.consuming, a.serve))
		})
	}

	select {
	case <-ctx.Done():
	case <-a.drainAsk:
	case <-failed.Done(): // a listener broke: drain, then report it
	}
	asked := ctx.Err() == nil
	until := time.Now().Add(a.cfg.Process.ShutdownGrace)
	a.drain(now)
	stopLink()
	go func() {
		<-consuming
		close(a.drained)
	}()
	// A drain that was asked for comes before the app's own end: until then it may publish, and does so in its shutdown.
	select {
	case <-ctx.Done():
	case <-failed.Done():
	}
	if asked {
		until = time.Now().Add(a.cfg.Process.ShutdownGrace)
	}
	stopSending()
	a.endpoint.stop(until, now)
	<-a.drained
	return a.stop(group, stopServing)
}

// announce logs what is started, and where it listens.
func (a *App) announce(addrs admin.Addrs, publishAddr string) {
	for _, w := range a.warnings() {
		a.log.Warn("configuration", "warning", w)
	}
	listening := []any{"admin", addrs.Admin, "control", addrs.Control}
	if publishAddr != "" {
		listening = append(listening, "publish", publishAddr)
	}
	a.log.Info("listening", listening...)
	a.log.Info("started", "version", a.build.Version, "commit", a.build.Commit, "service", a.cfg.Service.Name,
		"queue", a.plan.Queue, "topology", a.plan.Preset)
}

// listen binds every address.
func (a *App) listen() (addrs admin.Addrs, publish string, err error) {
	if addrs, err = a.admin.Listen(); err != nil {
		return addrs, "", err
	}
	if publish, err = a.endpoint.listen(); err != nil {
		return addrs, "", errors.Join(err, a.admin.Shutdown(context.Background()))
	}
	return addrs, publish, nil
}

// warnings are about what works, and may surprise. Never nil: in JSON they are a list, also when there are none.
func (a *App) warnings() []string {
	all := append([]string{}, slices.Concat(a.cfg.Warnings(), planWarnings(a.cfg, a.plan))...)
	if text := a.consumer.Oversized(); text != "" {
		all = append(all, text)
	}
	return all
}

// ended takes the end of our own context for what it is.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// drain takes no more, finishes what is in hand within the grace, and gives the rest back.
func (a *App) drain(now <-chan struct{}) {
	close(a.draining)
	grace := a.cfg.Process.ShutdownGrace
	a.log.Info("draining", "inflight", a.consumer.Inflight(), "grace", grace)
	ctx, cancel := context.WithTimeoutCause(context.Background(), grace, consume.ErrGrace)
	defer cancel()
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		select {
		case <-now:
			interrupt(consume.ErrNow)
		case <-stop:
		}
	}()
	d := a.consumer.Drain(ctx)
	switch {
	case d.Interrupted == 0:
		a.log.Info("drained", "returned", d.Returned)
	case errors.Is(context.Cause(ctx), consume.ErrNow):
		a.log.Warn("stopped at once", "released", d.Interrupted, "returned", d.Returned)
	default:
		a.log.Warn(fmt.Sprintf("grace expired, released %d", d.Interrupted), "released", d.Interrupted, "returned", d.Returned)
	}
}

// stop ends what is left, in the opposite order of the start, each step bounded.
func (a *App) stop(group *errgroup.Group, stopServing func()) error {
	ctx, cancel := context.WithTimeout(context.Background(), adminStop)
	defer cancel()
	errs := []error{a.admin.Shutdown(ctx)}
	stopServing()
	errs = append(errs, group.Wait())
	a.target.Close()
	a.closeCrashGuard()
	ctx, cancel = context.WithTimeout(context.Background(), flushStop)
	defer cancel()
	if err := a.tracing.Shutdown(ctx); err != nil { // spans are not worth an exit code
		a.log.Warn("traces not flushed", "error", err)
	}
	err := errors.Join(errs...)
	a.log.Info("stopped")
	return err
}
