package dispatch

import (
	"slices"
	"strings"
	"sync"

	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// encoding is the part of every request that configuration decides.
type encoding struct {
	*Options
	static      []byte // request line, Host and User-Agent
	path        int    // length of the URL's path, in static
	origin      string // of the URL, up to its path
	routes      []route
	typed       bool // a route needs the type of the message
	forward     message.Globs
	passthrough message.Globs
	badToken    sync.Once
}

func newEncoding(ep *http1.Endpoint, o *Options) *encoding {
	e := &encoding{
		Options:     o,
		static:      appendStart(nil, "POST", ep.Target, ep.Host, o.Version),
		path:        strings.IndexByte(ep.Target+"?", '?'),
		origin:      ep.Origin,
		forward:     message.NewGlobs(o.Forward, true),
		passthrough: message.NewGlobs(slices.DeleteFunc(slices.Clone(o.Passthrough), isTrace), true),
	}
	for _, r := range o.Routes {
		e.routes = append(e.routes, newRoute(r, ep.Origin))
		e.typed = e.typed || strings.HasPrefix(r, "type:") || strings.Contains(r, "{type}")
	}
	return e
}

func appendStart(dst []byte, method, target, host, version string) []byte {
	dst = append(dst, method+" "+target+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: amqp-sidecar/"...)
	dst = appendEscaped(dst, strings.ReplaceAll(version, " ", "-"), escapeValue)
	return append(dst, '\r', '\n')
}

// authorization appends the bearer token, if set. A token with characters that are not allowed in a header is left out:
// a mangled one would only be refused.
func (e *encoding) authorization(dst []byte) []byte {
	if e.Token == nil {
		return dst
	}
	t := e.Token()
	if t == "" {
		return dst
	}
	if !http1.Printable(t) || strings.Contains(t, " ") {
		e.badToken.Do(func() {
			e.Logger.Warn("app token not sent", "reason", "it has a space, control or non-ASCII character")
		})
		return dst
	}
	dst = append(dst, "Authorization: Bearer "...)
	dst = append(dst, t...)
	return append(dst, '\r', '\n')
}

// request is a buffer for an encoded head, with the state of the encoder.
type request struct {
	out     []byte
	leftOut int // headers of the message that are not in out

	keys  []string
	names []written // message headers in out
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
func (r *request) encode(e *encoding, m *message.Message, url string) int {
	r.out = append(r.out[:0], e.static...)
	if url != "" {
		r.out = append(append(r.out[:len("POST ")], url[len(e.origin):]...), e.static[len("POST ")+e.path:]...)
	}
	r.leftOut, r.spent, r.names = 0, 0, r.names[:0]

	r.out = e.authorization(r.out)
	r.content(e, m)
	r.properties(m)
	r.delivery(m)
	r.trace("traceparent: ", m.Trace.Traceparent)
	r.trace("tracestate: ", m.Trace.Tracestate)
	r.trace("baggage: ", m.Trace.Baggage)
	r.headers(e, m.Headers)
	if e.CloudEvents {
		r.synthesise(m)
	}
	if r.leftOut > 0 {
		r.number("Amqp-Headers-Truncated: ", int64(r.leftOut))
	}
	r.out = append(r.out, '\r', '\n')
	return r.leftOut
}
