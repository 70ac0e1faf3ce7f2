// Package dispatch POSTs a message, or a batch of them, to the app and reports the result as a message.Outcome: it
// writes messages as a request, and reads an answer as outcomes. The connections and the bytes of HTTP are
// internal/http1.
//
// It judges nothing: a 500, a refused connection and an answer that is not HTTP are facts, never errors of this
// package. It never lets a message header become a bare HTTP header unless it was listed and is harmless.
package dispatch

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/budget"
	"sidecar/internal/http1"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// Options configure a Target.
type Options struct {
	URL           string        // http://…, https://… or unix:///path/to.sock:/http/path
	Routes        []string      // pattern=path; the first one that matches a message decides about the path
	Unrouted      bool          // POST what no route matches to URL; otherwise it is not POSTed
	Timeout       time.Duration // whole attempt, from connect to the end of the bounded body
	RetryAfterMax time.Duration // what an app may ask for at most
	MaxBody       int64         // bytes; a larger message is not sent
	HealthPath    string        // what Probe GETs; "" = Probe only connects
	HealthTimeout time.Duration // of one Probe

	DefaultType string   // content type of a message without one; see amqpvalue.DefaultType
	Forward     []string // globs over message header names to send as Amqp-Header-*
	Passthrough []string // globs over names to send as bare headers, within the limits of deniedBare
	CloudEvents bool     // binary content mode: cloudEvents_* and cloudEvents:* headers become ce-*
	Envelopes   bool     // structured content mode: bodies are CloudEvents in JSON, whatever their content type

	Dapr   bool // the body of a 2xx may hold the status of a Dapr subscriber, see DaprAnswer
	Answer int  // bytes of a failing answer's body that are kept as text, at most 4 KiB; 0 = none

	BatchFormat string // of a POST with several messages: jsonl or cloudevents; "" = batches are off

	Token   func() string // bearer token, asked for every request; nil or "" = none
	Version string        // for User-Agent

	MaxIdle     int           // connections kept open between messages
	IdleTimeout time.Duration // 0 = 4s: below the 5s after which common app servers hang up
	TLS         *tls.Config   // for https; nil = the system's roots

	Memory     *budget.Account // asked before bytes of an answer are held; nil bounds nothing
	Logger     *slog.Logger
	Registerer prometheus.Registerer // must add the label queue: the metrics here have none
}

// Target is the app. It is safe for concurrent use.
type Target struct {
	o           Options
	client      *http1.Client
	prober      *http1.Client // keeps no connection: an answer to a probe is never taken for the answer to a message
	metrics     *metrics
	origin      string // of the URL, up to its path
	static      []byte // request line, Host and User-Agent of every request
	path        int    // length of the URL's path, in static
	health      []byte // the whole health request; nil = connect only
	routes      []route
	typed       bool // a route needs the type of the message
	format      format
	forward     message.Globs
	passthrough message.Globs
	badToken    sync.Once
	unread      telemetry.Throttle // of warnings about answers to batches
}

// New returns a Target for o.URL without connecting. It fails on a URL that cannot work.
func New(o Options) (*Target, error) {
	ep, err := http1.ParseEndpoint(o.URL)
	if err != nil {
		return nil, fmt.Errorf("app URL: %w", err)
	}
	o.CloudEvents = o.CloudEvents || o.BatchFormat == "cloudevents" && !o.Envelopes
	t := &Target{
		o:           o,
		client:      http1.NewClient(&ep, o.TLS, o.MaxIdle, cmp.Or(o.IdleTimeout, 4*time.Second)),
		prober:      http1.NewClient(&ep, o.TLS, 0, 0),
		metrics:     newMetrics(o.Registerer),
		origin:      ep.Origin,
		static:      appendStart(nil, "POST", ep.Target, ep.Host, o.Version),
		path:        strings.IndexByte(ep.Target+"?", '?'),
		format:      formats[o.BatchFormat],
		forward:     message.NewGlobs(o.Forward, true),
		passthrough: message.NewGlobs(slices.DeleteFunc(slices.Clone(o.Passthrough), isTrace), true),
		unread:      telemetry.Throttle{Interval: time.Minute},
	}
	for _, item := range o.Routes {
		r, _ := newRoute(item, ep.Origin)
		t.routes = append(t.routes, r)
		t.typed = t.typed || r.of == byType || strings.Contains(r.url, "{type}")
	}
	if o.HealthPath != "" {
		t.health = appendStart(nil, "GET", o.HealthPath, ep.Host, o.Version)
	}
	return t, nil
}

// Dispatch POSTs m and reports what happened. It returns when the answer's status line, headers and bounded body are
// in, or when there will be none. The end of ctx interrupts it at once; ctx should be one long-lived context shared by
// all calls, because every connection is bound to the context it serves.
//
// m is only read, and not kept after the return. With a BatchFormat it is a batch of one.
func (t *Target) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	if t.o.BatchFormat != "" {
		whole, each := t.DispatchBatch(ctx, []*message.Message{m}, m.Trace)
		if each != nil {
			return each[0]
		}
		return whole
	}
	start := time.Now()
	o := t.post(ctx, m, start)
	o.At = time.Now()
	o.Elapsed = o.At.Sub(start)
	t.metrics.count(&o)
	return o
}

func (t *Target) post(ctx context.Context, m *message.Message, start time.Time) message.Outcome {
	if n := int64(len(m.Body)); n > t.o.MaxBody {
		return tooLarge("body too large: %d bytes, limit %d", n, t.o.MaxBody)
	}
	x := newAttempt(t, start.Add(t.o.Timeout))
	defer x.release()
	if m = asSent(m); x.begin(ctx, t, m) {
		x.out.Truncated = x.request.encode(t, m, x.out.URL)
		x.send(ctx, t, m.Body)
	}
	return x.out
}

func tooLarge(format string, values ...any) message.Outcome {
	return message.Outcome{RetryAfter: -1, Failure: message.FailureTooLarge, Err: fmt.Errorf(format, values...)}
}

// begin determines where m is POSTed; it returns false, with the failure in x.out, if it must not be.
func (x *attempt) begin(ctx context.Context, t *Target, m *message.Message) bool {
	x.out.RetryAfter = -1
	if t.routes != nil {
		if x.out.Route, x.out.URL = t.Route(m); x.out.Route == 0 && !t.o.Unrouted {
			x.out.Failure, x.out.Err = message.FailureNoRoute, errors.New("no route matches the message")
			return false
		}
	}
	if ctx.Err() != nil {
		x.out.Failure, x.out.Err = http1.Interrupted(ctx)
		return false
	}
	return true
}

// send POSTs body behind the head in x.request and takes the facts from the answer.
func (x *attempt) send(ctx context.Context, t *Target, body []byte) {
	x.exchange.Head = x.request.out
	x.out.Failure, x.out.Err = t.client.Do(ctx, x.exchange, body)
	if x.out.Failure == message.FailureNone {
		x.answer.report(&x.exchange.Answer, &x.out, t.o.RetryAfterMax)
	}
}

// Origin is the URL of the app up to its path.
func (t *Target) Origin() string { return t.origin }

// Close closes the idle connections. Attempts under way finish, and then their connections are closed.
func (t *Target) Close() { t.client.Close() }

// attempt is one POST: the request and its answer. Attempts are kept in a pool, see http1.Exchange.
type attempt struct {
	exchange *http1.Exchange
	request  request
	answer   answer
	out      message.Outcome
}

var attempts = sync.Pool{New: func() any {
	x := &attempt{}
	x.exchange = http1.NewExchange(&x.answer)
	return x
}}

// newAttempt returns an attempt on t that must end at deadline.
func newAttempt(t *Target, deadline time.Time) *attempt {
	x := attempts.Get().(*attempt)
	x.exchange.Begin(t.o.Memory, deadline)
	x.request.out, x.answer.dapr, x.answer.limit = x.exchange.Head, t.o.Dapr, t.o.Answer
	return x
}

// release gives x back without any reference to the message it served.
func (x *attempt) release() {
	x.out = message.Outcome{}
	x.request.forget()
	x.answer = answer{contentType: x.answer.contentType[:0], location: x.answer.location[:0]}
	if x.exchange.End() {
		attempts.Put(x)
	}
}

// ErrRefused is wrapped by the error of Probe when no request can get to the app: connection refused, no such host or
// socket, no connection within the time, or a TLS handshake that fails or takes longer.
var ErrRefused = errors.New("no connection")

// Probe asks whether the app is there: a GET of the health path must give a 2xx; without a health path the app must
// accept a connection, with https its TLS handshake. Each probe has a connection of its own, so that it proves that the
// app still accepts.
//
// errors.Is(err, ErrRefused) when no connection came about.
func (t *Target) Probe(ctx context.Context) error {
	deadline := time.Now().Add(t.o.HealthTimeout)
	status := http.StatusOK
	var location []byte
	var failure message.Failure
	var err error
	if t.health == nil {
		failure, err = t.prober.Connect(ctx, deadline)
	} else {
		x := newAttempt(t, deadline)
		defer x.release()
		x.answer.dapr, x.answer.limit = false, 0
		head := t.authorization(append(x.exchange.Head[:0], t.health...))
		x.exchange.Head = append(head, "Accept: */*\r\nConnection: close\r\n\r\n"...)
		failure, err = t.prober.Do(ctx, x.exchange, nil)
		status, location = x.exchange.Answer.Status, x.answer.location
	}
	switch {
	// A port that takes the connection and resets it does not mean that the app has gone: the next probe decides.
	case failure == message.FailureRefused && !errors.Is(err, http1.ErrRefusedByReset):
		return fmt.Errorf("probe: %w: %w", ErrRefused, err)
	case failure != message.FailureNone:
		return fmt.Errorf("probe: %w", err)
	case status/100 != 2:
		unwell := &message.UnwellError{Status: status}
		if status/100 == 3 {
			unwell.Location = shownLocation(location)
		}
		return fmt.Errorf("probe: %w", unwell)
	}
	return nil
}
