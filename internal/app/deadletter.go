package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/topology"
)

// DeadLetters builds the dead-letter queue of the configured topology; by says who acts on it. It connects to nothing yet.
// A topology without such a queue is ErrConfig and deadletter.ErrNoQueue. A nil log is silent.
func DeadLetters(cfg *config.Config, build Build, by string, log *slog.Logger) (*deadletter.Queue, error) {
	plan, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	q, err := newDeadLetters(cfg, build, plan, commandBudget(cfg), newSpool(cfg), by, log, nil)
	if errors.Is(err, deadletter.ErrNoQueue) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return q, err
}

// newDeadLetters connects in silence: every look makes a connection of its own, and what keeps it from that is an answer.
func newDeadLetters(
	cfg *config.Config, build Build, plan *topology.Plan, memory *budget.Budget, spool *broker.Spool, by string, log *slog.Logger, r prometheus.Registerer,
) (*deadletter.Queue, error) {
	o := brokerOptions(cfg, "dlq", build, nil, nil)
	o.Memory, o.Spool = memory.Account(budget.DeadLetters), spool
	return deadletter.New(deadletter.Options{Plan: plan, Broker: o, By: by, Logger: log, Registerer: r})
}

// commandBudget is that of a command. Within a memory limit it may run in the container of a sidecar: what the sidecar's own
// budget leaves is a quarter, and the two programs themselves need some of that.
func commandBudget(cfg *config.Config) *budget.Budget {
	if MemoryLimit() > 0 {
		return budget.New(int64(cfg.Window.Memory) / 8)
	}
	return budget.New(int64(cfg.Window.Memory))
}

// apiActor says who acts when it is asked for over HTTP: which process. Who has asked it is in its log.
func apiActor() string {
	host, err := os.Hostname()
	if err != nil {
		return "api"
	}
	return "api@" + host
}
