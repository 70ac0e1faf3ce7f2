// Package dispatch POSTs one message to the app and reports what it saw as a message.Outcome: it writes a message as a
// request, and reads an answer as an outcome. The connections and the bytes of HTTP are internal/http1.
//
// It judges nothing: a 500, a refused connection and an answer that is not HTTP are facts, never errors of this
// package. It never lets a message header become a bare HTTP header unless it was listed and is harmless.
package dispatch
