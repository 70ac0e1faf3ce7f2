package admin

import "net/http"

func (s *Server) listOperations(w http.ResponseWriter, _ *http.Request) {
	list, _ := s.operations.since(0)
	answer(w, http.StatusOK, map[string][]Operation{"operations": list})
}

func (s *Server) showOperation(w http.ResponseWriter, r *http.Request) {
	t := s.operations.find(r.PathValue("id"))
	if t == nil {
		refuse(w, http.StatusNotFound, noOperation)
		return
	}
	answer(w, http.StatusOK, s.operations.copy(t))
}

const noOperation = "There is no such operation, or it is too long ago."

// cancelOperation changes nothing about an operation that has ended.
func (s *Server) cancelOperation(w http.ResponseWriter, r *http.Request) {
	if status, detail := checkEmpty(w, r); status != 0 {
		refuse(w, status, detail)
		return
	}
	id := r.PathValue("id")
	t := s.operations.find(id)
	if t == nil {
		refuse(w, http.StatusNotFound, noOperation)
		return
	}
	t.cancel(errCancelled)
	s.audit(r, "cancel", http.StatusAccepted, "operation", id)
	answer(w, http.StatusAccepted, s.operations.copy(t))
}
