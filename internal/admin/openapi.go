package admin

import (
	_ "embed"
	"net/http"
)

// openAPIDocument describes the control listener. The tests check every request and every answer of theirs against it.
//
//go:embed openapi.json
var openAPIDocument []byte

func openAPI(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIDocument) // only a client that is gone can fail this
}
