package main

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"sidecar/internal/testkit/proxy"
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
	if kind == freezeReturns {
		return plan.HTTP
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
	if until(ctx, 20*time.Second, "a session to end",
		func() bool { err = r.db.terminate(ctx); return err == nil }) != nil {
		return err
	}
	return nil
}

// freezeReturns is a kind that needs messages which are POSTed.
const freezeReturns = "freeze-returns"

// Messages that wait while the broker is suspended: as many as the sidecar lets wait. It has given all of them up when
// the broker returns them, so nothing waits for a return then. And those that come behind them.
const (
	givenUp   = 256
	afterward = 20
)

// returnsFrozen suspends the broker while POSTs wait of which it will return each one, until the sidecar has given them
// up. Its client library drops a return that is not taken within five seconds: the sidecar waits for a confirm for
// longer than that.
func returnsFrozen(ctx context.Context, r *rig, d time.Duration) error {
	// The sidecar may be opening a channel: then all but the first message of it would wait for that one, and not be sent.
	err := r.unroutable(1)
	if err == nil {
		err = until(ctx, 20*time.Second, "nothing that is POSTed to wait", r.supplied)
	}
	if err == nil {
		err = r.node.signal(syscall.SIGSTOP)
	}
	if err != nil {
		return err
	}
	err = r.unroutable(givenUp)
	rest(ctx, d)
	err = errors.Join(err, r.node.signal(syscall.SIGCONT))
	rest(ctx, time.Second)
	return errors.Join(err, r.unroutable(afterward))
}

// cutBehind ends every connection to the broker right behind the first confirm on it.
func cutBehind(ctx context.Context, r *rig, d time.Duration) error {
	for _, w := range r.wires {
		w.Set(proxy.Shape{CutBehind: proxy.BehindConfirm})
	}
	rest(ctx, d)
	r.shape(proxy.Shape{})
	return nil
}

func relay(s syscall.Signal) func(context.Context, *rig, time.Duration) error {
	return again(func(r *rig) *process { return r.relay }, s)
}
