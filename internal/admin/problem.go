package admin

import (
	"encoding/json"
	"net/http"
)

// problem is an RFC 9457 document. Its detail never repeats anything of the request.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
}

func refuse(w http.ResponseWriter, status int, detail string) {
	write(w, status, "application/problem+json", problem{"about:blank", http.StatusText(status), status, detail})
}

func answer(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, contentType string, v any) {
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	// Only a client that is gone can fail this.
	_ = json.NewEncoder(w).Encode(v)
}
