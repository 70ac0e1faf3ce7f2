package admin

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"

	"sidecar/internal/deadletter"
)

// problem is an RFC 9457 document. Of the request, its detail repeats nothing but names and values of a filter, quoted
// and cut.
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
	b, err := json.Marshal(v)
	if err != nil { // a bug: better said than an answer without a body
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // only a client that is gone can fail this
}

// statusOf says what an error of package deadletter is in HTTP. What it does not name is trouble with the broker, which
// passes.
func statusOf(err error) int {
	switch {
	case errors.Is(err, deadletter.ErrInvalid):
		return http.StatusBadRequest
	case errors.Is(err, deadletter.ErrNoQueue), errors.Is(err, deadletter.ErrMissing), errors.Is(err, deadletter.ErrNotFound):
		return http.StatusNotFound
	case errors.Is(err, deadletter.ErrInUse), errors.Is(err, deadletter.ErrUnfit):
		return http.StatusConflict
	}
	return http.StatusServiceUnavailable
}

// maxDetail bounds the text of an error, in bytes: it may join one for each of the broker's URLs.
const maxDetail = 1 << 10

// refuseError answers with the problem that err is and returns its status.
func refuseError(w http.ResponseWriter, err error) int {
	status := statusOf(err)
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	refuse(w, status, sentence(err))
	return status
}

// sentence is the text of err for people, in one line.
func sentence(err error) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\n", "; ")
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
