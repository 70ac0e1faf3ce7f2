package deadletter

import (
	"context"
	"log/slog"
)

// How an operation ended.
const (
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// Audit says who did what to a queue, and with which result. The command line, the API and through it the console
// write the same line.
type Audit struct {
	Action string // redrive, discard or import
	Queue  string
	By     string // as in x-redriven-by
	State  string // Succeeded, Failed or Cancelled
	DryRun bool
	To     string // of a redrive to another queue
	Error  string // why it failed or was cancelled

	Operation, Peer string // of the API

	Progress
}

// Log writes a as one line, a warning if the operation failed.
func (a *Audit) Log(log *slog.Logger) {
	level := slog.LevelInfo
	if a.State == Failed {
		level = slog.LevelWarn
	}
	fields := []any{"action", a.Action, "queue", a.Queue, "by", a.By}
	for _, f := range [][2]string{{"operation", a.Operation}, {"peer", a.Peer}, {"to", a.To}} {
		if f[1] != "" {
			fields = append(fields, f[0], f[1])
		}
	}
	fields = append(fields, "state", a.State, "dry_run", a.DryRun,
		"matched", a.Matched, "done", a.Done, "failed", a.Failed, "skipped", a.Skipped)
	if a.Error != "" {
		fields = append(fields, "error", a.Error)
	}
	log.Log(context.Background(), level, "control operation ended", fields...)
}

// By returns who acts, as in x-redriven-by.
func (q *Queue) By() string { return q.o.By }
