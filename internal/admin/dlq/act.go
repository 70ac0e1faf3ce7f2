package dlq

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

const (
	// beginTime is how long the answer to a request that begins an operation waits to be able to say that it could not:
	// finding out that another operation uses the queue takes a few tries.
	beginTime = 2 * time.Second

	// maxEcho bounds what of a request is repeated with its operation, in bytes.
	maxEcho = 4 << 10

	// maxExport bounds the limit of an export, defaultRedriveLimit is that of a redrive that is answered at its end.
	maxExport, defaultRedriveLimit = 1_000_000, 10
)

func (a *API) redrive(w http.ResponseWriter, r *http.Request) {
	var d deadletter.Redrive
	a.operate(w, r, "redrive", &d, func(queue *deadletter.Queue, op *Operation) (action, error) {
		op.DryRun, op.to = d.DryRun, string(d.To)
		return redriving(queue, d), cmp.Or(d.Check(), queue.Check(&d))
	})
}

func redriving(q *deadletter.Queue, d deadletter.Redrive) action {
	return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		return q.Redrive(ctx, d, report)
	}
}

func (a *API) discard(w http.ResponseWriter, r *http.Request) {
	var d deadletter.Discard
	a.operate(w, r, "discard", &d, func(queue *deadletter.Queue, op *Operation) (action, error) {
		err := d.Check()
		if err == nil && !d.DryRun && d.Confirm != queue.Name() {
			err = fmt.Errorf("%w: confirm must be the name of the dead-letter queue", deadletter.ErrInvalid)
		}
		op.DryRun = d.DryRun
		return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
			return queue.Discard(ctx, d, report)
		}, err
	})
}

func echo(q any) any {
	b, err := json.Marshal(q)
	if err != nil || len(b) > maxEcho {
		return map[string]int{"omitted_bytes": len(b)}
	}
	return json.RawMessage(b)
}

// preparation makes an operation of a request that was read, for a queue.
type preparation func(*deadletter.Queue, *Operation) (action, error)

// operate begins an operation and answers with it, or with what kept it from beginning. A refused request is logged,
// too: it was meant to change something.
func (a *API) operate(w http.ResponseWriter, r *http.Request, kind string, q any, prepare preparation) {
	var op Operation
	t, err := a.begin(r, kind, q, prepare)
	if err == nil {
		select {
		case <-t.begun:
		case <-time.After(a.BeginTime):
		case <-r.Context().Done():
		}
		op = a.Copy(t)
		if op.State == opFailed && op.Progress == (deadletter.Progress{}) {
			err = t.err
		}
	}
	if err != nil {
		a.audit(r, kind, refuseError(w, err))
		return
	}
	w.Header().Set("Location", "/dlq/operations/"+op.ID)
	a.audit(r, kind, http.StatusAccepted, "operation", op.ID, "dry_run", op.DryRun)
	httpguard.Answer(w, http.StatusAccepted, op)
}

// begin reads the body of a request into q and starts the operation that it asks for, which first waits for the read
// that is under way; later reads are refused.
func (a *API) begin(r *http.Request, kind string, q any, prepare preparation) (*Tracked, error) {
	if err := httpguard.DecodeBody(r, q); err != nil {
		return nil, fmt.Errorf("%w: %w", deadletter.ErrInvalid, err)
	}
	queue, err := a.queue(r)
	if err != nil {
		return nil, err
	}
	op := Operation{Kind: kind, Queue: queue.Name(), By: r.RemoteAddr, Request: q, actor: queue.By()}
	do, err := prepare(queue, &op)
	if err != nil {
		return nil, err
	}
	op.Request = echo(op.Request)
	return a.Begin(op, func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		select {
		case a.Reads <- struct{}{}:
			<-a.Reads
		case <-ctx.Done():
			return deadletter.Progress{}, context.Cause(ctx)
		}
		return do(ctx, report)
	})
}

type redriven struct {
	Queue     string `json:"queue"`
	Requested int    `json:"requested"`
	Redriven  int    `json:"redriven"`
	Failed    int    `json:"failed"`
	Remaining int    `json:"remaining"` // of the messages at the start
}

// redriveNow redrives the first messages of the queue, without a condition, and answers when the redrive has ended:
// that is the shape of an existing admin interface, which clients already use. The redrive continues when the client
// disconnects.
func (a *API) redriveNow(w http.ResponseWriter, r *http.Request) {
	q := struct {
		Limit int `json:"limit"`
	}{defaultRedriveLimit}
	t, err := a.begin(r, "redrive", &q, func(queue *deadletter.Queue, op *Operation) (action, error) {
		d := deadletter.Redrive{Selection: deadletter.Selection{All: true, Limit: q.Limit}}
		op.Request = d
		if q.Limit < 1 || q.Limit > maxList {
			return nil, fmt.Errorf("%w: limit must be an integer from 1 to %d", deadletter.ErrInvalid, maxList)
		}
		return redriving(queue, d), nil
	})
	if err != nil {
		a.audit(r, "redrive", refuseError(w, err))
		return
	}
	answerBy(w, time.Time{})
	select {
	case <-t.Done:
	case <-r.Context().Done():
		a.audit(r, "redrive", http.StatusAccepted, "operation", t.ID) // the client is gone, and the operation goes on
		return
	}
	answerBy(w, time.Now().Add(answerTime))
	p, err := a.Copy(t).Progress, t.err
	if err != nil && p.Done > 0 {
		err = fmt.Errorf("%w; %d messages were redriven before", err, p.Done)
	}
	if err != nil {
		a.audit(r, "redrive", refuseError(w, err), "operation", t.ID)
		return
	}
	a.audit(r, "redrive", http.StatusOK, "operation", t.ID)
	httpguard.Answer(w, http.StatusOK, redriven{t.Queue, q.Limit, p.Done, p.Failed, max(0, p.Total-p.Done)})
}
