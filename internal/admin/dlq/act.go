package dlq

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// Bounds of an action.
const (
	maxActionLimit = 1_000_000

	// beginTime is how long the answer to a request that begins an operation waits to be able to say that it could not:
	// finding out that another operation uses the queue takes a few tries.
	beginTime = 2 * time.Second

	// maxEcho bounds what of a request is repeated with its operation, in bytes.
	maxEcho = 4 << 10
)

// choice says which messages an action is for: those of a filter, or all.
type choice struct {
	Filter conditions `json:"filter,omitempty"`
	All    bool       `json:"all,omitempty"`
	Limit  int        `json:"limit,omitempty"` // 0 = no limit
	DryRun bool       `json:"dry_run,omitempty"`
}

// read never returns a selection of everything that was not asked for in so many words.
func (c *choice) read() (s deadletter.Selection, err error) {
	if s.Filter, err = c.Filter.read(); err != nil {
		return s, err
	}
	if c.Limit < 0 || c.Limit > maxActionLimit {
		return s, fmt.Errorf("%w: limit must be an integer from 0 to %d", deadletter.ErrInvalid, maxActionLimit)
	}
	if s.Limit = c.Limit; c.All != s.Filter.Empty() {
		return s, fmt.Errorf(`%w: give either a filter with a condition or "all": true`, deadletter.ErrInvalid)
	}
	return s, nil
}

type redriveRequest struct {
	choice
	Reset  bool   `json:"reset,omitempty"`
	Rate   string `json:"rate,omitempty"` // "20/s"
	Canary int    `json:"canary,omitempty"`
}

func (q *redriveRequest) read() (d deadletter.Redrive, err error) {
	d = deadletter.Redrive{DryRun: q.DryRun, Reset: q.Reset, Canary: q.Canary}
	if d.Selection, err = q.choice.read(); err != nil {
		return d, err
	}
	if q.Canary < 0 || q.Canary > deadletter.MaxCanary {
		return d, fmt.Errorf("%w: canary must be an integer from 0 to %d", deadletter.ErrInvalid, deadletter.MaxCanary)
	}
	if q.Rate != "" {
		d.Rate, err = deadletter.ParseRate(q.Rate)
	}
	return d, err
}

type discardRequest struct {
	choice
	Confirm string `json:"confirm"` // the queue's name
}

func (a *API) redrive(w http.ResponseWriter, r *http.Request) {
	var q redriveRequest
	var d deadletter.Redrive
	ok := a.read(w, r, "redrive", &q, func() (err error) {
		d, err = q.read()
		return err
	})
	if ok {
		a.operate(w, r, Operation{Kind: "redrive", DryRun: d.DryRun, Request: echo(q)}, a.redriving(d))
	}
}

// echo is what is repeated of a request.
func echo(q any) any {
	b, err := json.Marshal(q)
	if err != nil || len(b) > maxEcho {
		return map[string]int{"omitted_bytes": len(b)}
	}
	return json.RawMessage(b)
}

func (a *API) redriving(d deadletter.Redrive) action {
	return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		return a.o.Queue.Redrive(ctx, d, report)
	}
}

func (a *API) discard(w http.ResponseWriter, r *http.Request) {
	var q discardRequest
	var sel deadletter.Selection
	ok := a.read(w, r, "discard", &q, func() (err error) {
		if sel, err = q.read(); err == nil && !q.DryRun {
			err = a.confirmed(q.Confirm)
		}
		return err
	})
	if ok {
		a.operate(w, r, Operation{Kind: "discard", DryRun: q.DryRun, Request: echo(q)}, a.discarding(sel, q.DryRun))
	}
}

func (a *API) discarding(sel deadletter.Selection, dry bool) action {
	return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		return a.o.Queue.Discard(ctx, sel, dry, report)
	}
}

// confirmed asks for the name of the queue before messages are deleted.
func (a *API) confirmed(name string) error {
	if name != a.o.Queue.Name() {
		return fmt.Errorf("%w: confirm must be the name of the dead-letter queue", deadletter.ErrInvalid)
	}
	return nil
}

// read reads the body of an action into q and checks it. A refused request is logged, too: it was meant to change
// something.
func (a *API) read(w http.ResponseWriter, r *http.Request, action string, q any, check func() error) bool {
	b, status, detail := httpguard.ReadBody(w, r)
	if status == 0 {
		err := decode(b, q)
		if err == nil {
			err = check()
		}
		if err == nil {
			return true
		}
		status, detail = statusOf(err), httpguard.Sentence(err)
	}
	a.audit(r, action, status)
	refuse(w, status, detail)
	return false
}

// decode is httpguard.Decode, whose errors are deadletter.ErrInvalid here.
func decode(b []byte, into any) error {
	if err := httpguard.Decode(b, into); err != nil {
		return fmt.Errorf("%w: %w", deadletter.ErrInvalid, err)
	}
	return nil
}

// operate begins an operation and answers with it, or with what kept it from beginning.
func (a *API) operate(w http.ResponseWriter, r *http.Request, op Operation, do action) {
	t, err := a.begin(r, op, do)
	if err == nil {
		begun := time.NewTimer(beginTime)
		defer begun.Stop()
		select {
		case <-t.begun:
		case <-begun.C:
		case <-r.Context().Done():
		}
		op = a.Operations.Copy(t)
		if op.State == opFailed && op.Progress == (deadletter.Progress{}) {
			err = t.err
		}
	}
	if err != nil {
		a.audit(r, op.Kind, refuseError(w, err))
		return
	}
	w.Header().Set("Location", "/dlq/operations/"+op.ID)
	a.audit(r, op.Kind, http.StatusAccepted, "operation", op.ID, "dry_run", op.DryRun)
	answer(w, http.StatusAccepted, op)
}

// begin starts an operation, which first waits for the reads that are under way; later reads are refused.
func (a *API) begin(r *http.Request, op Operation, do action) (*Tracked, error) {
	op.By = r.RemoteAddr
	return a.Operations.Begin(op, func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		for n := range cap(a.Looks) {
			select {
			case a.Looks <- struct{}{}:
			case <-ctx.Done():
				a.giveBack(n)
				return deadletter.Progress{}, context.Cause(ctx)
			}
		}
		a.giveBack(cap(a.Looks))
		return do(ctx, report)
	})
}

func (a *API) giveBack(turns int) {
	for range turns {
		<-a.Looks
	}
}
