package app

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/outbox"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// relay is the outbox's relay and the connection that it has for itself: neither a channel that the broker closes nor a
// write that has to be cut off may touch parking.
type relay struct {
	*outbox.Relay

	publisher *broker.Publisher
}

// OutboxRule makes config.Load report a connection string that cannot be used together with everything else.
func OutboxRule() config.Option {
	return config.Rule(func(cfg *config.Config, reject func(reason string, variables ...string)) {
		dsn, err := cfg.Outbox.DSN.Value()
		if err != nil || dsn == "" {
			return // reported already, or no outbox
		}
		if err := outbox.CheckDSN(dsn); err != nil {
			reject(err.Error(), "SIDECAR_OUTBOX_DSN")
		}
	})
}

// newRelay returns nil where there is no outbox.
func newRelay(
	cfg *config.Config, build Build, plan *topology.Plan, memory *budget.Budget, tracing *telemetry.Tracing, log *slog.Logger,
	r prometheus.Registerer,
) *relay {
	if !cfg.Outbox.DSN.IsSet() {
		return nil
	}
	p := broker.NewPublisher(broker.NewDialer(brokerOptions(cfg, "outbox", build, log, r)))
	return &relay{publisher: p, Relay: outbox.New(outbox.Options{
		Database: outboxDatabase(cfg), Names: outboxNames(cfg),
		Exchange: cmp.Or(cfg.Outbox.Exchange, plan.Exchanges[0].Name),
		Batch:    cfg.Outbox.Batch, PollInterval: cfg.Outbox.PollInterval, MaxAttempts: cfg.Outbox.MaxAttempts,
		Retention: cfg.Outbox.Retention,
		Publisher: p, Memory: memory.Account(budget.Outbox), Tracing: tracing, Logger: log, Registerer: r,
	})}
}

func outboxDatabase(cfg *config.Config) outbox.Database {
	return outbox.Database{DSN: cfg.Outbox.DSN.Value, Name: fmt.Sprintf("sidecar %s outbox", cfg.Service.Name)}
}

func outboxNames(cfg *config.Config) outbox.Names {
	return outbox.ParseTable(cfg.Outbox.Table, cfg.Outbox.Column)
}

// outboxWarnings are about a connection string that works.
func outboxWarnings(cfg *config.Config) []string {
	dsn, err := cfg.Outbox.DSN.Value()
	if err != nil || dsn == "" {
		return nil
	}
	host := outbox.PlaintextHost(dsn)
	if host == "" {
		return nil
	}
	return []string{fmt.Sprintf("SIDECAR_OUTBOX_DSN: its password and all messages may travel to %s unencrypted; "+
		"sslmode=verify-full does not allow that", host)}
}

// run relays until ctx ends. The connection to the broker ends after the last round. nil has nothing to do.
func (r *relay) run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	link, unlink := context.WithCancel(context.WithoutCancel(ctx))
	var connection sync.WaitGroup
	connection.Go(func() { _ = r.publisher.Run(link) }) // ends with link and in no other way
	defer connection.Wait()
	defer unlink()
	return r.Run(ctx)
}

// check is what readiness tells about the outbox, without depending on it.
func (r *relay) check() []admin.Check {
	if r == nil {
		return nil
	}
	s := r.State()
	c := admin.Check{Name: "outbox", OK: s.Connected && r.publisher.Connected(), Detail: s.Problem}
	if s.Connected && !c.OK {
		c.Detail = broker.ErrDisconnected.Error()
	}
	return []admin.Check{c}
}
