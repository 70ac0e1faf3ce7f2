package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"sidecar/internal/config"
	"sidecar/internal/crash"
	"sidecar/internal/dispatch"
	"sidecar/internal/topology"
)

// newCrashGuard returns the memory of crashes; nil, and no file is touched, when none are counted.
func newCrashGuard(cfg *config.Config, plan *topology.Plan, log *slog.Logger) (*crash.Guard, error) {
	r := &cfg.Retry
	if r.CrashLimit == 0 {
		return nil, nil //nolint:nilnil // there is none, and that is fine
	}
	g, err := crash.Open(crash.Options{
		Dir: r.CrashDir, Queue: plan.Queue, Limit: r.CrashLimit, Workers: cfg.Window.Concurrency, Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("SIDECAR_CRASH_DIR=%s cannot be used for SIDECAR_CRASH_LIMIT=%d: %w: it must be a directory "+
			"that this user may write to, for example a mounted emptyDir", r.CrashDir, r.CrashLimit, err)
	}
	return g, nil
}

func (a *App) closeCrashGuard() {
	if a.crashes != nil {
		a.crashes.Close()
	}
}

// appGone looks whether nobody listens where the app should.
func (a *App) appGone(ctx context.Context) bool {
	return errors.Is(a.target.Probe(ctx), dispatch.ErrRefused)
}
