package admin

import (
	"net/http"

	"sidecar/internal/httpguard"
)

// refuse answers with a problem document. Of the request, its detail repeats nothing but names and values of a filter,
// quoted and cut.
func refuse(w http.ResponseWriter, status int, detail string) {
	httpguard.Refuse(w, httpguard.NewProblem(status, "", detail))
}

func answer(w http.ResponseWriter, status int, v any) {
	httpguard.Write(w, status, "application/json", v)
}
