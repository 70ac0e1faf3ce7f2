package dlq

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

const keptOperations = 20

// The states of an operation.
const (
	opRunning   = "running"
	opSucceeded = deadletter.Succeeded
	opFailed    = deadletter.Failed
	opCancelled = deadletter.Cancelled
)

// Operation is an action on the dead-letter queue that takes its time. It goes on when the client that began it is
// gone.
type Operation struct {
	ID       string              `json:"id"`
	Kind     string              `json:"kind"`  // redrive or discard
	Queue    string              `json:"queue"` // the dead-letter queue
	State    string              `json:"state"` // one of the constants above
	Started  time.Time           `json:"started"`
	Ended    time.Time           `json:"ended,omitzero"`
	By       string              `json:"by"` // the peer's address
	DryRun   bool                `json:"dry_run"`
	Progress deadletter.Progress `json:"progress"`
	Error    string              `json:"error,omitempty"` // why it failed or was cancelled
	Request  any                 `json:"request"`

	actor string // as in x-redriven-by
	to    string // of a redrive to another queue
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
	begin   func()
	begun   chan struct{} // closed by begin, with the first report: it is alone with the queue; or when it has ended
	Done    chan struct{} // closed when it has ended
}

// Operations runs one operation at a time and keeps the last ones.
type Operations struct {
	log    *slog.Logger
	ctx    context.Context // ends at Stop
	cancel context.CancelCauseFunc

	mu      sync.Mutex
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
	if err := context.Cause(o.ctx); err != nil {
		return nil, err
	}
	if err := inUse(o.current()); err != nil {
		return nil, err
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // never fails
	op.ID, op.State, op.Started = hex.EncodeToString(id), opRunning, time.Now().UTC()
	ctx, cancel := context.WithCancelCause(o.ctx)
	t := &Tracked{Operation: op, cancel: cancel, begun: make(chan struct{}), Done: make(chan struct{})}
	t.begin = sync.OnceFunc(func() { close(t.begun) })
	o.changed(t)
	o.kept = append(o.kept, t)
	o.kept = slices.Delete(o.kept, 0, max(0, len(o.kept)-keptOperations))
	go o.run(ctx, t, do) // until Done
	return t, nil
}

// inUse returns deadletter.ErrInUse if an operation runs.
func inUse(op *Operation) error {
	if op == nil {
		return nil
	}
	return fmt.Errorf("%w: %s %s runs", deadletter.ErrInUse, op.Kind, op.ID)
}

func (o *Operations) run(ctx context.Context, t *Tracked, do action) {
	defer t.cancel(nil)
	p, err := o.guarded(ctx, t, do)
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
	t.begin()
	o.record(&op) // before done: a caller that waits for the end finds the line
	close(t.Done)
}

// record writes down how an operation ended, beside the line that says who began it.
func (o *Operations) record(op *Operation) {
	r := deadletter.Audit{
		Action: op.Kind, Queue: op.Queue, By: op.actor, State: op.State, DryRun: op.DryRun, To: op.to, Error: op.Error,
		Operation: op.ID, Peer: op.By, Progress: op.Progress,
	}
	r.Log(o.log)
}

// guarded keeps a bug in one operation from ending the process, and keeps its last report.
func (o *Operations) guarded(ctx context.Context, t *Tracked, do action) (p deadletter.Progress, err error) {
	defer func() {
		if v := recover(); v != nil {
			o.log.Error("admin panic", "panic", v, "stack", string(debug.Stack()))
			o.mu.Lock()
			p, err = t.Progress, errors.New("internal error")
			o.mu.Unlock()
		}
	}()
	return do(ctx, func(p deadletter.Progress) {
		o.mu.Lock()
		t.Progress = p
		o.changed(t)
		o.mu.Unlock()
		t.begin()
	})
}

// changed is called with the lock.
func (o *Operations) changed(t *Tracked) {
	o.version++
	t.version = o.version
}

// current is Now for a caller that has the lock.
func (o *Operations) current() *Operation {
	if n := len(o.kept); n > 0 && o.kept[n-1].State == opRunning {
		op := o.kept[n-1].Operation
		return &op
	}
	return nil
}

// Now is a picture of the operation that runs, nil when none does.
func (o *Operations) Now() *Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.current()
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
	if i := slices.IndexFunc(o.kept, func(t *Tracked) bool { return t.ID == id }); i >= 0 {
		return o.kept[i]
	}
	return nil
}

// Copy is a picture of t.
func (o *Operations) Copy(t *Tracked) Operation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return t.Operation
}

// Stop refuses new operations and ends the running one at a safe point. Reads end.
func (o *Operations) Stop() { o.cancel(errStopping) }

// Wait returns when the operation has ended that ran at Stop, or with ctx.
func (o *Operations) Wait(ctx context.Context) {
	o.mu.Lock()
	kept := o.kept
	o.mu.Unlock()
	if len(kept) == 0 {
		return
	}
	select {
	case <-kept[len(kept)-1].Done:
	case <-ctx.Done():
		o.log.Warn("dead-letter operation did not end in time")
	}
}

func (a *API) listOperations(w http.ResponseWriter, _ *http.Request) {
	list, _ := a.Since(0)
	httpguard.Answer(w, http.StatusOK, map[string][]Operation{"operations": list})
}

func (a *API) showOperation(w http.ResponseWriter, r *http.Request) {
	if t := a.known(w, r); t != nil {
		httpguard.Answer(w, http.StatusOK, a.Copy(t))
	}
}

// known is the operation of the path. Without one it has answered itself, and returns nil.
func (a *API) known(w http.ResponseWriter, r *http.Request) *Tracked {
	t := a.Find(r.PathValue("id"))
	if t == nil {
		httpguard.Refuse(w, http.StatusNotFound, "", "There is no such operation, or it is too long ago.")
	}
	return t
}

// cancelOperation changes nothing about an operation that has ended.
func (a *API) cancelOperation(w http.ResponseWriter, r *http.Request) {
	if status, detail := httpguard.CheckEmpty(r); status != 0 {
		httpguard.Refuse(w, status, "", detail)
		return
	}
	if t := a.known(w, r); t != nil {
		t.cancel(errCancelled)
		a.audit(r, "cancel", http.StatusAccepted, "operation", t.ID)
		httpguard.Answer(w, http.StatusAccepted, a.Copy(t))
	}
}
