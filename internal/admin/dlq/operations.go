package dlq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// keptOperations is how many operations are remembered.
const keptOperations = 20

// The states of an operation.
const (
	opRunning   = "running"
	opSucceeded = "succeeded"
	opFailed    = "failed"
	opCancelled = "cancelled"
)

// Operation is an action on the dead-letter queue that takes its time. It goes on when the client that began it is
// gone.
type Operation struct {
	ID       string              `json:"id"`
	Kind     string              `json:"kind"`  // redrive or discard
	State    string              `json:"state"` // one of the constants above
	Started  time.Time           `json:"started"`
	Ended    time.Time           `json:"ended,omitzero"`
	By       string              `json:"by"` // the peer's address
	DryRun   bool                `json:"dry_run"`
	Progress deadletter.Progress `json:"progress"`
	Error    string              `json:"error,omitempty"` // why it failed or was cancelled
	Request  any                 `json:"request"`
}

// action does the work of an operation. It returns what it has done also with an error, and ends at a safe point when
// its context does.
type action func(context.Context, deadletter.Report) (deadletter.Progress, error)

var (
	errCancelled = errors.New("cancelled")
	errStopping  = errors.New("the sidecar stops")
)

// Tracked is an operation that is remembered.
type Tracked struct {
	Operation
	err     error // what it ended with
	version uint64
	cancel  context.CancelCauseFunc
	begun   chan struct{} // closed with the first report: it is alone with the queue; or when it has ended
	Done    chan struct{} // closed when it has ended
}

// Operations runs one operation at a time and keeps the last ones.
type Operations struct {
	log    *slog.Logger
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	kept    []*Tracked // the oldest first
	version uint64     // counts the changes of all
}

func newOperations(log *slog.Logger) *Operations {
	o := &Operations{log: log}
	o.ctx, o.cancel = context.WithCancelCause(context.Background())
	return o
}

// Begin starts an operation unless one runs. An error is deadletter.ErrInUse, which names that one, or errStopping.
func (o *Operations) Begin(op Operation, do action) (*Tracked, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return nil, errStopping
	}
	if now := o.current(); now != nil {
		return nil, inUse(now)
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	op.ID, op.State, op.Started = hex.EncodeToString(id), opRunning, time.Now().UTC()
	ctx, cancel := context.WithCancelCause(o.ctx)
	t := &Tracked{Operation: op, cancel: cancel, begun: make(chan struct{}), Done: make(chan struct{})}
	o.changed(t)
	o.kept = append(o.kept, t)
	o.kept = slices.Delete(o.kept, 0, max(0, len(o.kept)-keptOperations))
	o.wg.Go(func() { o.run(ctx, t, do) })
	return t, nil
}

func inUse(t *Tracked) error {
	return fmt.Errorf("%w: %s %s runs", deadletter.ErrInUse, t.Kind, t.ID)
}

func (o *Operations) run(ctx context.Context, t *Tracked, do action) {
	defer t.cancel(nil)
	begin := sync.OnceFunc(func() { close(t.begun) })
	p, err := o.guarded(t, func(report deadletter.Report) (deadletter.Progress, error) {
		return do(ctx, func(p deadletter.Progress) {
			report(p)
			begin()
		})
	})
	o.mu.Lock()
	t.Progress, t.err, t.Ended = p, err, time.Now().UTC()
	switch {
	case err == nil:
		t.State = opSucceeded
	case ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, context.Canceled)):
		t.State, t.Error = opCancelled, httpguard.Sentence(context.Cause(ctx))
	default:
		t.State, t.Error = opFailed, httpguard.Sentence(err)
	}
	o.changed(t)
	op := t.Operation
	o.mu.Unlock()
	begin()
	o.record(&op) // before done: a caller that waits for the end finds the line
	close(t.Done)
}

// record writes down how an operation ended, beside the line that says who began it.
func (o *Operations) record(op *Operation) {
	level, p := slog.LevelInfo, &op.Progress
	if op.State == opFailed {
		level = slog.LevelWarn
	}
	fields := []any{
		"action", op.Kind, "operation", op.ID, "peer", op.By, "state", op.State, "dry_run", op.DryRun,
		"matched", p.Matched, "done", p.Done, "failed", p.Failed, "skipped", p.Skipped,
	}
	if op.Error != "" {
		fields = append(fields, "error", op.Error)
	}
	o.log.Log(context.Background(), level, "control operation ended", fields...)
}

// guarded keeps a bug in one operation from ending the process, and keeps its last report.
func (o *Operations) guarded(
	t *Tracked, do func(deadletter.Report) (deadletter.Progress, error),
) (p deadletter.Progress, err error) {
	defer func() {
		if v := recover(); v != nil {
			o.log.Error("admin panic", "panic", v, "stack", string(debug.Stack()))
			o.mu.Lock()
			p, err = t.Progress, errors.New("internal error")
			o.mu.Unlock()
		}
	}()
	return do(func(p deadletter.Progress) {
		o.mu.Lock()
		defer o.mu.Unlock()
		t.Progress = p
		o.changed(t)
	})
}

// changed is called with the lock.
func (o *Operations) changed(t *Tracked) {
	o.version++
	t.version = o.version
}

// current is the operation that runs, nil when none does. It is called with the lock.
func (o *Operations) current() *Tracked {
	if n := len(o.kept); n > 0 && o.kept[n-1].State == opRunning {
		return o.kept[n-1]
	}
	return nil
}

// busy returns deadletter.ErrInUse while an operation runs.
func (o *Operations) busy() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.current(); now != nil {
		return inUse(now)
	}
	return nil
}

// Now is a picture of the operation that runs.
func (o *Operations) Now() (op Operation, runs bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := o.current(); now != nil {
		return now.Operation, true
	}
	return op, false
}

// Since returns copies of all operations that have changed after version, the newest first, and the version they have
// now.
func (o *Operations) Since(version uint64) ([]Operation, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := []Operation{}
	for _, t := range slices.Backward(o.kept) {
		if t.version > version {
			list = append(list, t.Operation)
		}
	}
	return list, o.version
}

// Find returns nil when there is no such operation, or it is too old.
func (o *Operations) Find(id string) *Tracked {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, t := range o.kept {
		if t.ID == id {
			return t
		}
	}
	return nil
}

// Copy is a picture of t.
func (o *Operations) Copy(t *Tracked) Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return t.Operation
}

// stop ends the running operation at a safe point, and refuses new ones.
func (o *Operations) stop() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.cancel(errStopping)
}

// wait returns when the operation has ended that ran at stop, or with ctx.
func (o *Operations) wait(ctx context.Context) {
	ended := make(chan struct{})
	go func() {
		o.wg.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		o.log.Warn("dead-letter operation did not end in time")
	}
}
