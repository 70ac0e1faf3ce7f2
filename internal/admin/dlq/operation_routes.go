package dlq

import (
	"net/http"

	"sidecar/internal/httpguard"
)

func (a *API) listOperations(w http.ResponseWriter, _ *http.Request) {
	list, _ := a.Operations.Since(0)
	answer(w, http.StatusOK, map[string][]Operation{"operations": list})
}

func (a *API) showOperation(w http.ResponseWriter, r *http.Request) {
	t := a.Operations.Find(r.PathValue("id"))
	if t == nil {
		refuse(w, http.StatusNotFound, noOperation)
		return
	}
	answer(w, http.StatusOK, a.Operations.Copy(t))
}

const noOperation = "There is no such operation, or it is too long ago."

// cancelOperation changes nothing about an operation that has ended.
func (a *API) cancelOperation(w http.ResponseWriter, r *http.Request) {
	if status, detail := httpguard.CheckEmpty(w, r); status != 0 {
		refuse(w, status, detail)
		return
	}
	id := r.PathValue("id")
	t := a.Operations.Find(id)
	if t == nil {
		refuse(w, http.StatusNotFound, noOperation)
		return
	}
	t.cancel(errCancelled)
	a.audit(r, "cancel", http.StatusAccepted, "operation", id)
	answer(w, http.StatusAccepted, a.Operations.Copy(t))
}
