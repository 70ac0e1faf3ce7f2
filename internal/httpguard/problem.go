package httpguard

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"sidecar/internal/terminal"
)

// Problem is an RFC 9457 document.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Code   string `json:"code,omitempty"`
}

// Refuse answers with a problem document. A code is of a closed set, for programs. Of the request, the detail repeats
// nothing but names and values of a filter, quoted and cut.
func Refuse(w http.ResponseWriter, status int, code, detail string) {
	write(w, status, "application/problem+json", Problem{"about:blank", http.StatusText(status), status, detail, code})
}

// Answer answers with v as JSON.
func Answer(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, contentType string, v any) {
	b, err := json.Marshal(v)
	if err != nil { // a bug: better said than an answer without a body
		panic(err)
	}
	b = append(terminal.Escape(b), '\n')
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(b))) // so that the answer has an end before the handler has
	w.WriteHeader(status)
	_, _ = w.Write(b) // only a client that is gone can fail this
}

// maxDetail bounds the text of an error, in bytes: it may join one for each of the broker's URLs.
const maxDetail = 1 << 10

// Sentence is the text of err for people, in one line.
func Sentence(err error) string {
	s := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\n", "; ")
	if len(s) > maxDetail {
		s = strings.ToValidUTF8(s[:maxDetail], "") + "…"
	}
	return s
}
