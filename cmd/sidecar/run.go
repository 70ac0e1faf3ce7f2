package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
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
	useOneCore(in.environ)
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

// useOneCore keeps Go's scheduler on one core, unless GOMAXPROCS in environ says how many. A sidecar's work is short
// system calls: on one core they follow one another; on several every message wakes threads on other cores, and idle
// ones spin in search of work.
func useOneCore(environ []string) {
	given := slices.ContainsFunc(environ, func(v string) bool {
		n, ok := strings.CutPrefix(v, "GOMAXPROCS=")
		return ok && n != ""
	})
	if !given {
		runtime.GOMAXPROCS(1)
	}
}
