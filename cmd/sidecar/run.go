package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"sidecar/internal/app"
)

// runSidecar runs until SIGTERM or SIGINT has drained it. A second signal stops at once. SIGHUP is ignored.
func runSidecar(ctx context.Context, in invocation) error {
	cfg, err := in.load("run")
	if err != nil {
		return err
	}
	a, err := app.New(cfg, app.Build{Version: version, Commit: commit}, in.stdout)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	now := make(chan struct{})
	// Go ends a process whose standard output is closed. A log collector that died is not a reason to stop. SIGHUP asks
	// other programs to read their files again, which happens by itself here.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	done := make(chan struct{})
	defer close(done)
	go func() {
		for _, act := range []func(){stop, func() { close(now) }} {
			select {
			case <-signals:
				act()
			case <-done:
				return
			}
		}
	}()
	return a.Run(ctx, now)
}
