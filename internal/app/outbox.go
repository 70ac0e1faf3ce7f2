package app

import (
	"context"
	"fmt"
	"sync"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/outbox"
	"sidecar/internal/topology"
)

// relay is the outbox's relay with a connection of its own: neither a channel that the broker closes nor a write that
// is cut off must disturb parking.
type relay struct {
	*outbox.Relay

	publisher *broker.Publisher
}

func newRelay(sh shared, plan *topology.Plan) sender {
	p := sh.newPublisher("outbox")
	r := &relay{publisher: p, Relay: outbox.New(sh.outboxOptions(p, plan))}
	return sender{part{name: "outbox", run: r.run}, r.check, p}
}

// outboxWarnings returns warnings about a usable connection string.
func outboxWarnings(cfg *config.Config) []string {
	dsn, err := cfg.Outbox.DSN.Value()
	if err != nil || dsn == "" {
		return nil
	}
	host, err := outbox.CheckDSN(dsn)
	if err != nil || host == "" {
		return nil
	}
	return []string{fmt.Sprintf("SIDECAR_OUTBOX_DSN: its password and all messages may travel to %s unencrypted; "+
		"sslmode=verify-full does not allow that", host)}
}

// run relays until ctx ends. The connection to the broker ends after the last batch.
func (r *relay) run(ctx context.Context) error {
	link, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var connection sync.WaitGroup
	connection.Go(func() { _ = r.publisher.Run(link) }) // returns only the end of link
	defer connection.Wait()
	defer unlink()
	return r.Run(ctx)
}

func (r *relay) check() admin.Check {
	s := r.State()
	c := admin.Check{Name: "outbox", OK: s.Connected && r.publisher.Connected(), Detail: s.Problem}
	if s.Connected && !c.OK {
		c.Detail = broker.ErrDisconnected.Error()
	}
	return c
}
