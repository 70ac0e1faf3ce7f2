package publish

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"sidecar/internal/broker"
	"sidecar/internal/httpguard"
	"sidecar/internal/telemetry"
)

const (
	publishPath = "/publish/"
	readyPath   = "/readyz"
)

// Header values that are the same in every answer.
var (
	noSniff = []string{"nosniff"}
	noStore = []string{"no-store"}
	closing = []string{"close"}
)

// serve answers every request. It uses the path as it was written, never cleans it and never redirects: a routing key
// may hold any character.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	h := w.Header()
	h["X-Content-Type-Options"], h["Cache-Control"] = noSniff, noStore
	defer func() {
		if v := recover(); v != nil { // a bug in one answer only fails this answer
			s.o.Logger.Error("publish panic", "panic", v, "stack", string(debug.Stack()))
			s.refuse(w, &failure{code: internal, status: http.StatusInternalServerError})
		}
	}()
	if r.ContentLength != 0 {
		// Until the body is read to its end: the server would read the rest of it first, however slowly it comes.
		h["Connection"] = closing
	}
	s.route(w, r, start)
	if r.ContentLength != 0 && h["Connection"] != nil {
		linger(w, r)
	}
}

func (s *Server) route(w http.ResponseWriter, r *http.Request, start time.Time) {
	path := r.URL.EscapedPath()
	if f := s.guard(r, path); f != nil {
		s.metrics.count("", f.code, 0)
		s.refusals.Do(func(suppressed int) {
			s.o.Logger.Warn("publish refused",
				"peer", r.RemoteAddr, "status", f.status, "reason", f.detail, "suppressed", suppressed)
		})
		w.Header()["Connection"] = closing
		s.refuse(w, f)
		return
	}
	switch {
	case path == readyPath:
		s.readiness(w, r)
	case path == batchPath:
		if httpguard.Allows(w, r, string(badMethod), http.MethodPost) {
			s.batch(w, r)
		}
	case strings.HasPrefix(path, publishPath):
		if httpguard.Allows(w, r, string(badMethod), http.MethodPost) {
			s.publish(w, r, path[len(publishPath):], start)
		}
	default:
		s.refuse(w, &failure{code: notFound, status: http.StatusNotFound,
			detail: "The paths are /publish/{exchange}/{routing key}, /publish:batch and /readyz."})
	}
}

// originCodes are the codes of requests that come from the wrong place, by their status.
var originCodes = map[int]code{
	http.StatusMisdirectedRequest: misdirected, http.StatusForbidden: forbidden, http.StatusBadRequest: invalid,
}

// guard checks the origin and the token of a request, whatever its path.
func (s *Server) guard(r *http.Request, path string) *failure {
	if status, detail := s.listener.Hosts.CheckOrigin(r); status != 0 {
		return &failure{code: originCodes[status], status: status, detail: detail}
	}
	switch {
	case path == readyPath: // probes have no token
		return nil
	case s.o.Token != nil && !httpguard.HasToken(r, s.o.Token()):
		return &failure{code: unauthorized, status: http.StatusUnauthorized, detail: "A valid bearer token is required."}
	}
	return nil
}

func (s *Server) readiness(w http.ResponseWriter, r *http.Request) {
	if !httpguard.Allows(w, r, string(badMethod), http.MethodGet, http.MethodHead) {
		return
	}
	if f := s.ready(); f != nil {
		s.refuse(w, f)
		return
	}
	httpguard.Answer(w, http.StatusOK, map[string]bool{"ready": true})
}

func (s *Server) refuse(w http.ResponseWriter, f *failure) {
	switch {
	case f.code == blocked || f.code == disconnected || f.code == stopping:
		w.Header().Set("Retry-After", "5")
	case f.status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "1")
	case f.status == http.StatusUnauthorized:
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	httpguard.Refuse(w, f.status, string(f.code), f.detail)
}

// publish answers a request with one message. target is the path behind publishPath, as it was written.
func (s *Server) publish(w http.ResponseWriter, r *http.Request, target string, start time.Time) {
	alias, f := s.one(w, r, target, start)
	if f == nil {
		s.metrics.count(alias, published, time.Since(start))
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.metrics.count(alias, f.code, time.Since(start))
	s.refuse(w, f)
}

// received records that a body has been read to its end: the connection stays open for another request.
func received(w http.ResponseWriter, r *http.Request) {
	httpguard.Received(r)
	w.Header().Del("Connection")
}

const (
	lingerTime  = 5 * time.Second
	lingerBytes = 64 << 20
)

// linger reads and discards, within bounds, the bytes that a client still sends after its answer. Closing a connection
// with unread bytes resets it, and a client that writes its whole request before it reads would lose the answer.
func linger(w http.ResponseWriter, r *http.Request) {
	c := http.NewResponseController(w)
	if c.Flush() == nil && c.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
		_, _ = io.CopyN(io.Discard, r.Body, lingerBytes)
	}
}

// one reads and publishes the message of a request. It returns the alias when there is one of that name.
func (s *Server) one(w http.ResponseWriter, r *http.Request, target string, start time.Time) (string, *failure) {
	m, f := s.target(r, target)
	room := room{server: s, w: w}
	defer func() { broker.Give(s.o.Memory, room.taken, m.err) }()
	if f == nil {
		f = s.ready()
	}
	if f == nil && len(s.inflight) == cap(s.inflight) {
		f = errBusy
	}
	if f == nil {
		f = room.reserve(costOfHeaders(r.Header))
	}
	if f == nil {
		m.msg, f = readHeaders(r.Header)
	}
	if f == nil {
		m.msg.Body, f = body(r, &room)
	}
	if f != nil {
		return m.alias, f
	}
	received(w, r)
	w.Header()["Amqp-Message-Id"] = identify(&m)
	if !s.inflight.Enter() { // not before: a body that is still arriving must not hold a slot
		return m.alias, errBusy
	}
	defer s.inflight.Leave()
	m.trace = prefer(carrierOf(r.Header), telemetry.CarrierFrom(m.msg.Headers))
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(s.o.Timeout))
	defer cancel()
	return m.alias, s.begin(ctx, &m)()
}

// body reads the body of a request.
func body(q *http.Request, r *room) ([]byte, *failure) {
	longest := r.server.o.MaxBody
	switch {
	case q.ContentLength > longest:
		return nil, errTooLarge
	case q.ContentLength == 0:
		return nil, nil
	case q.ContentLength > 0:
		longest = q.ContentLength
	}
	b, f := r.read(nil, q.Body, longest)
	if f == errBroken {
		return nil, bad("The body ended early or came too slowly.")
	}
	return b, f
}

// target reads the alias and the routing key from a path.
func (s *Server) target(r *http.Request, path string) (outgoing, *failure) {
	if r.URL.RawQuery != "" || r.URL.ForceQuery {
		return outgoing{}, bad("There is no query; a '?' in a routing key is %%3F.")
	}
	alias, rest, found := strings.Cut(path, "/")
	if !found {
		return outgoing{}, bad("The path must be /publish/{exchange}/{routing key}, such as " +
			"/publish/default/order.created; {exchange} is an alias, and the key may be empty.")
	}
	key, _ := url.PathUnescape(rest) // net/http has parsed the path before: it cannot fail
	return s.address(alias, key)
}
