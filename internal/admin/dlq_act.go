package admin

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
	maxCanary      = 1000

	// beginTime is how long the answer to a request that begins an operation waits to be able to say that it could not:
	// finding out that somebody else is at the queue takes a few tries.
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
	if q.Canary < 0 || q.Canary > maxCanary {
		return d, fmt.Errorf("%w: canary must be an integer from 0 to %d", deadletter.ErrInvalid, maxCanary)
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

type purgeRequest struct {
	Confirm string `json:"confirm"` // the queue's name
}

func (s *Server) redrive(w http.ResponseWriter, r *http.Request) {
	var q redriveRequest
	var d deadletter.Redrive
	ok := s.read(w, r, "redrive", &q, func() (err error) {
		d, err = q.read()
		return err
	})
	if ok {
		s.operate(w, r, Operation{Kind: "redrive", DryRun: d.DryRun, Request: echo(q)}, s.redriving(d))
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

func (s *Server) redriving(d deadletter.Redrive) action {
	return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		return s.o.DeadLetters.Redrive(ctx, d, report)
	}
}

func (s *Server) discard(w http.ResponseWriter, r *http.Request) {
	var q discardRequest
	var sel deadletter.Selection
	ok := s.read(w, r, "discard", &q, func() (err error) {
		if sel, err = q.read(); err == nil && !q.DryRun {
			err = s.confirmed(q.Confirm)
		}
		return err
	})
	if ok {
		s.operate(w, r, Operation{Kind: "discard", DryRun: q.DryRun, Request: echo(q)}, s.discarding(sel, q.DryRun))
	}
}

func (s *Server) purge(w http.ResponseWriter, r *http.Request) {
	var q purgeRequest
	if s.read(w, r, "purge", &q, func() error { return s.confirmed(q.Confirm) }) {
		s.operate(w, r, Operation{Kind: "purge", Request: echo(q)}, s.discarding(deadletter.Selection{}, false))
	}
}

func (s *Server) discarding(sel deadletter.Selection, dry bool) action {
	return func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		return s.o.DeadLetters.Discard(ctx, sel, dry, report)
	}
}

// confirmed asks for the name of the queue before messages are deleted.
func (s *Server) confirmed(name string) error {
	if name != s.o.DeadLetters.Name() {
		return fmt.Errorf("%w: confirm must be the name of the dead-letter queue", deadletter.ErrInvalid)
	}
	return nil
}

// read reads the body of an action into q and checks it. What it refuses is written down too: somebody meant to act.
func (s *Server) read(w http.ResponseWriter, r *http.Request, action string, q any, check func() error) bool {
	b, status, detail := readBody(w, r)
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
	s.audit(r, action, status)
	refuse(w, status, detail)
	return false
}

// operate begins an operation and answers with it, or with what kept it from beginning.
func (s *Server) operate(w http.ResponseWriter, r *http.Request, op Operation, do action) {
	t, err := s.begin(r, op, do)
	if err == nil {
		s.wait(r, t.begun, beginTime)
		op = s.operations.copy(t)
		if op.State == opFailed && op.Progress == (deadletter.Progress{}) {
			err = t.err
		}
	}
	if err != nil {
		s.audit(r, op.Kind, refuseError(w, err))
		return
	}
	w.Header().Set("Location", "/dlq/operations/"+op.ID)
	s.audit(r, op.Kind, http.StatusAccepted, "operation", op.ID, "dry_run", op.DryRun)
	answer(w, http.StatusAccepted, op)
}

// begin starts an operation, which first waits for the looks that are under way: later ones see that it runs.
func (s *Server) begin(r *http.Request, op Operation, do action) (*tracked, error) {
	op.By = r.RemoteAddr
	return s.operations.begin(op, func(ctx context.Context, report deadletter.Report) (deadletter.Progress, error) {
		for n := range cap(s.turns) {
			select {
			case s.turns <- struct{}{}:
			case <-ctx.Done():
				s.giveBack(n)
				return deadletter.Progress{}, context.Cause(ctx)
			}
		}
		s.giveBack(cap(s.turns))
		return do(ctx, report)
	})
}

func (s *Server) giveBack(turns int) {
	for range turns {
		<-s.turns
	}
}
