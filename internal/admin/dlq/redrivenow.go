package dlq

import (
	"bytes"
	"fmt"
	"net/http"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// The paths below /admin/dlq are compatible with an existing admin interface: one request, and the answer when the
// operation is done.

const defaultRedriveLimit = 10

func (a *API) queues(w http.ResponseWriter, r *http.Request) {
	d, ok := a.depth(w, r)
	if !ok {
		return
	}
	type queue struct {
		Name      string `json:"name"`
		Messages  int    `json:"messages"` // ready
		Consumers int    `json:"consumers"`
		Service   string `json:"service"`
		Queue     string `json:"queue"` // whose dead letters they are
	}
	answer(w, http.StatusOK, map[string][]queue{"queues": {{
		a.o.Queue.Name(), d.Ready, d.Consumers, a.o.Service, a.o.Main,
	}}})
}

type redriveNowRequest struct {
	Limit *int `json:"limit"`
}

// redriven is how a redrive ended.
type redriven struct {
	Queue     string `json:"queue"`
	Requested int    `json:"requested"`
	Redriven  int    `json:"redriven"`
	Failed    int    `json:"failed"`
	Remaining int    `json:"remaining"` // of the messages at the start
}

// redriveNow answers when the redrive has ended. It goes on when the client is gone.
func (a *API) redriveNow(w http.ResponseWriter, r *http.Request) {
	limit, ok := a.readLimit(w, r)
	if !ok {
		return
	}
	d := deadletter.Redrive{Selection: deadletter.Selection{Limit: limit}}
	op := Operation{Kind: "redrive", Request: echo(redriveRequest{choice: choice{All: true, Limit: limit}})}
	t, err := a.begin(r, op, a.redriving(d))
	if err != nil {
		a.audit(r, "redrive", refuseError(w, err))
		return
	}
	a.unhurried(w)
	select {
	case <-t.Done:
	case <-r.Context().Done():
		a.audit(r, "redrive", http.StatusAccepted, "operation", t.ID) // the client is gone, and the operation goes on
		return
	}
	a.hurried(w)
	op = a.Operations.Copy(t)
	p, err := op.Progress, t.err
	if err != nil && p.Done > 0 {
		err = fmt.Errorf("%w; %d messages were redriven before", err, p.Done)
	}
	if err != nil {
		a.audit(r, "redrive", refuseError(w, err), "operation", t.ID)
		return
	}
	a.audit(r, "redrive", http.StatusOK, "operation", t.ID)
	answer(w, http.StatusOK, redriven{a.o.Queue.Name(), limit, p.Done, p.Failed, max(0, p.Total-p.Done)})
}

func (a *API) readLimit(w http.ResponseWriter, r *http.Request) (limit int, ok bool) {
	b, status, detail := httpguard.ReadBody(w, r)
	limit = defaultRedriveLimit
	if status == 0 && len(bytes.Trim(b, httpguard.JSONSpace)) > 0 {
		var q redriveNowRequest
		err := decode(b, &q)
		if q.Limit != nil {
			limit = *q.Limit
		}
		if err == nil && (limit < 1 || limit > maxList) {
			err = fmt.Errorf("%w: limit must be an integer from 1 to %d", deadletter.ErrInvalid, maxList)
		}
		if err != nil {
			status, detail = statusOf(err), httpguard.Sentence(err)
		}
	}
	if status != 0 {
		a.audit(r, "redrive", status)
		refuse(w, status, detail)
	}
	return limit, status == 0
}
