package main

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"sidecar/test/chaos/plan"
)

// Kinds that need an outbox, and that need two sidecars which relay it.
var (
	relaying = []string{"postgres-kill", "postgres-immediate", "postgres-freeze", "outbox-terminate", "close-outbox"}
	second   = []string{"relay-kill", "relay-term"}
)

// arrives is the source of which a message must arrive after a fault of a kind.
func arrives(kind string) plan.Source {
	if slices.Contains(relaying, kind) || slices.Contains(second, kind) {
		return plan.Outbox
	}
	return plan.AMQP
}

// ended stops the database in one of the ways of scripts/postgres.sh and starts it again.
func ended(how string) func(context.Context, *rig, time.Duration) error {
	return func(_ context.Context, r *rig, _ time.Duration) error {
		return errors.Join(r.db.sh(how), r.db.sh("start"))
	}
}

func databaseFrozen(ctx context.Context, r *rig, d time.Duration) error {
	if err := r.db.sh("freeze"); err != nil {
		return err
	}
	rest(ctx, d)
	return r.db.sh("thaw")
}

// terminated ends the sessions of the relays. They may be away because of the fault before.
func terminated(ctx context.Context, r *rig, _ time.Duration) error {
	var err error
	if until(ctx, 20*time.Second, "a session to end", func() bool { err = r.db.terminate(ctx); return err == nil }) != nil {
		return err
	}
	return nil
}

func relay(s syscall.Signal) func(context.Context, *rig, time.Duration) error {
	return again(func(r *rig) *process { return r.relay }, s)
}
