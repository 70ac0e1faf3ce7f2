package app

import (
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
)

// DeadLetters builds the dead-letter queue of the configured topology; by is the actor that is recorded in messages. It
// opens no connection. A topology without such a queue is ErrConfig and deadletter.ErrNoQueue. A nil log is silent.
func DeadLetters(cfg *config.Config, build Build, by string, log *slog.Logger) (*deadletter.Queue, error) {
	plan, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	sh := shared{cfg: cfg, build: build, log: log, budget: commandBudget(cfg), spool: newSpool(cfg), plan: plan}
	q, err := newDeadLetters(sh, by, nil)
	if errors.Is(err, deadletter.ErrNoQueue) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return q, err
}

// newDeadLetters connects without log or metrics: every operation makes a connection of its own, and returns its error.
func newDeadLetters(sh shared, by string, r prometheus.Registerer) (*deadletter.Queue, error) {
	o := brokerOptions(sh.cfg, "dlq", sh.build)
	o.Memory, o.Spool = sh.budget.Account(budget.DeadLetters), sh.spool
	return deadletter.New(deadletter.Options{Plan: sh.plan, Broker: o, By: by, Logger: sh.log, Registerer: r})
}

// commandBudget returns the memory budget of a command. Within a memory limit the command may share a container with a
// sidecar, whose own budget leaves a quarter for everything else.
func commandBudget(cfg *config.Config) *budget.Budget {
	if MemoryLimit() > 0 {
		return budget.New(int64(cfg.Window.Memory) / 8)
	}
	return budget.New(int64(cfg.Window.Memory))
}

// apiActor returns the actor of operations over HTTP: this process. The log has the client.
func apiActor() string {
	host, err := os.Hostname()
	if err != nil {
		return "api"
	}
	return "api@" + host
}
