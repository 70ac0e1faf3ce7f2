package app

import (
	"errors"
	"fmt"
	"log/slog"

	"sidecar/internal/config"
	"sidecar/internal/deadletter"
)

// DeadLetters builds the dead-letter queue of the configured topology; by says who acts on it. It connects to nothing yet.
// A topology without such a queue is ErrConfig and deadletter.ErrNoQueue. A nil log is silent.
func DeadLetters(cfg *config.Config, build Build, by string, log *slog.Logger) (*deadletter.Queue, error) {
	plan, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	q, err := deadletter.New(deadletter.Options{
		Plan: plan, Broker: brokerOptions(cfg, "dlq", build, log, nil), By: by, Logger: log,
	})
	if errors.Is(err, deadletter.ErrNoQueue) {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return q, err
}
