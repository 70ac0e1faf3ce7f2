package dlq

import (
	"errors"
	"net/http"

	"sidecar/internal/deadletter"
	"sidecar/internal/httpguard"
)

// statusOf says what an error of package deadletter is in HTTP. What it does not name is trouble with the broker, which
// passes.
func statusOf(err error) int {
	switch {
	case errors.Is(err, deadletter.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, deadletter.ErrNoQueue), errors.Is(err, deadletter.ErrMissing),
		errors.Is(err, deadletter.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, deadletter.ErrInUse), errors.Is(err, deadletter.ErrUnsafe):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// refuseError answers with the problem that err is and returns its status.
func refuseError(w http.ResponseWriter, err error) int {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	refuse(w, status, httpguard.Sentence(err))
	return status
}

// refuse answers with a problem document. Of the request, its detail repeats nothing but names and values of a filter,
// quoted and cut.
func refuse(w http.ResponseWriter, status int, detail string) {
	httpguard.Refuse(w, httpguard.NewProblem(status, "", detail))
}

func answer(w http.ResponseWriter, status int, v any) {
	httpguard.Write(w, status, "application/json", v)
}
