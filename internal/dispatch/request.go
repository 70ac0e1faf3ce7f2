package dispatch

import (
	"bytes"
	"strings"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

func appendStart(dst []byte, method, target, host, version string) []byte {
	dst = append(dst, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: amqp-sidecar/"...)
	dst = appendEscaped(dst, strings.ReplaceAll(version, " ", "-"), escapeValue)
	return append(dst, '\r', '\n')
}

// authorization appends the bearer token, if set. A token with characters that are not allowed in a header is left out:
// a mangled one would only be refused.
func (t *Target) authorization(dst []byte) []byte {
	if t.o.Token == nil {
		return dst
	}
	token := t.o.Token()
	if token == "" {
		return dst
	}
	if !http1.Printable(token) || strings.Contains(token, " ") {
		t.badToken.Do(func() {
			t.o.Logger.Warn("app token not sent", "reason", "it has a space, control or non-ASCII character")
		})
		return dst
	}
	dst = append(dst, "Authorization: Bearer "...)
	dst = append(dst, token...)
	return append(dst, '\r', '\n')
}

// request is a buffer for an encoded head, with the state of the encoder.
type request struct {
	out     []byte
	leftOut int  // headers of the message that are not in out
	inJSON  bool // out is JSON, an event

	keys  []string
	names []written // message headers in out
	most  int       // how many of them may be written
	spent int       // bytes of the budget used
	json  []byte
}

// forget drops references to the message.
func (r *request) forget() {
	clear(r.keys)
	if cap(r.keys) > 1024 {
		r.keys = nil
	}
}

// encode writes the head for m, everything up to the body, and returns the number of message headers it left out. url
// is that of a route, or "". The same message always gives the same bytes.
func (r *request) encode(t *Target, m *message.Message, url string) int {
	r.start(t, url)
	r.leftOut, r.spent, r.names = 0, 0, r.names[:0]
	before := len(r.out)
	r.content(t, m)
	r.properties(m)
	r.delivery(m)
	r.traces(&m.Trace)
	r.most = maxLines - reservedLines - bytes.Count(r.out[before:], []byte{'\n'})
	r.headers(t, m.Headers)
	if t.o.CloudEvents && !isEnvelope(m.ContentType) { // in structured mode the body has them
		r.synthesise(m)
	}
	if r.leftOut > 0 {
		r.number("Amqp-Headers-Truncated: ", int64(r.leftOut))
	}
	r.out = append(r.out, '\r', '\n')
	return r.leftOut
}

// start writes what does not depend on the message.
func (r *request) start(t *Target, url string) {
	r.out = append(r.out[:0], t.static...)
	if url != "" {
		r.out = append(append(r.out[:len("POST ")], url[len(t.origin):]...), t.static[len("POST ")+t.path:]...)
	}
	r.out = t.authorization(r.out)
}
