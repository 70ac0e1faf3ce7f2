package admin

import (
	_ "embed"
	"io"
	"net/http"
)

// openAPIDocument describes the control listener. The tests check every request and every answer of theirs against it.
//
//go:embed openapi.json
var openAPIDocument string

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, openAPIDocument) // only a client that is gone can fail this
}
