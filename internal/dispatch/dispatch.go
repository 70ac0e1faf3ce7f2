package dispatch

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/budget"
	"sidecar/internal/http1"
	"sidecar/internal/message"
)

// Options configure a Target. The zero value of a field means the default given with it.
type Options struct {
	URL           string        // http://…, https://… or unix:///path/to.sock:/http/path
	Timeout       time.Duration // whole attempt, from connect to the end of the bounded body; default 30s
	RetryAfterMax time.Duration // what an app may ask for at most; default 5m
	MaxBody       int64         // bytes; a larger message is not sent; default 16 MiB
	HealthPath    string        // what Probe GETs; "" = Probe only connects
	HealthTimeout time.Duration // of one Probe; default 1s

	Forward     []string // globs over message header names to send as Amqp-Header-*; nil = every name
	Passthrough []string // globs over names to send as bare headers, within the limits of deniedBare
	CloudEvents bool     // binary content mode: cloudEvents_* and cloudEvents:* headers become ce-*
	Envelopes   bool     // structured content mode: bodies are CloudEvents in JSON, whatever their content type

	Dapr bool // the body of a 2xx may hold the status of a Dapr subscriber, see DaprAnswer

	Token   func() string // bearer token, asked for every request; nil or "" = none
	Version string        // for User-Agent

	MaxIdle     int           // connections kept open between messages; default 16
	IdleTimeout time.Duration // default 4s: below the 5s after which common app servers hang up
	TLS         *tls.Config   // for https; nil = the system's roots

	Queue      string          // label of the metrics
	Memory     *budget.Account // asked before bytes of an answer are held; nil bounds nothing
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() {
	def(&o.Timeout, 30*time.Second)
	def(&o.RetryAfterMax, 5*time.Minute)
	def(&o.MaxBody, 16<<20)
	def(&o.HealthTimeout, time.Second)
	def(&o.MaxIdle, 16)
	def(&o.IdleTimeout, 4*time.Second)
	def(&o.Version, "dev")
	if o.Forward == nil {
		o.Forward = []string{"*"}
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](v *T, d T) {
	if *v == *new(T) {
		*v = d
	}
}

// Target is the app. It is safe for concurrent use.
type Target struct {
	client        *http1.Client
	encoding      *encoding
	metrics       *metrics
	timeout       time.Duration
	retryAfterMax time.Duration
	maxBody       int64
	memory        *budget.Account
	dapr          bool
	health        []byte // the whole health request; nil = connect only
	healthTimeout time.Duration
}

// New returns a Target for o.URL without connecting. It fails on a URL, health path or header glob that cannot work.
func New(o Options) (*Target, error) {
	o.setDefaults()
	ep, err := http1.ParseEndpoint(o.URL)
	if err != nil {
		return nil, fmt.Errorf("app URL: %w", err)
	}
	enc := newEncoding(&ep, &o)
	health, err := enc.healthRequest(&ep, o.HealthPath)
	if err != nil {
		return nil, fmt.Errorf("health path: %w", err)
	}
	return &Target{
		client:        http1.NewClient(&ep, o.TLS, o.MaxIdle, o.IdleTimeout),
		encoding:      enc,
		metrics:       newMetrics(o.Registerer, o.Queue),
		timeout:       o.Timeout,
		retryAfterMax: o.RetryAfterMax,
		maxBody:       o.MaxBody,
		memory:        o.Memory,
		dapr:          o.Dapr,
		health:        health,
		healthTimeout: o.HealthTimeout,
	}, nil
}

// Dispatch POSTs m and reports what happened. It returns when the answer's status line, headers and bounded body are
// in, or when there will be none. The end of ctx interrupts it at once; ctx should be one long-lived context shared by
// all calls, because every connection is bound to the context it serves.
//
// m is only read, and not kept after the return.
func (t *Target) Dispatch(ctx context.Context, m *message.Message) message.Outcome {
	start := time.Now()
	o := t.post(ctx, m, start)
	o.At = time.Now()
	o.Elapsed = o.At.Sub(start)
	t.metrics.count(&o)
	return o
}

func (t *Target) post(ctx context.Context, m *message.Message, start time.Time) message.Outcome {
	if n := int64(len(m.Body)); n > t.maxBody {
		err := fmt.Errorf("body too large: %d bytes, limit %d", n, t.maxBody)
		return message.Outcome{RetryAfter: -1, Failure: message.FailureTooLarge, Err: err}
	}
	x := newAttempt(t, start.Add(t.timeout))
	defer x.release()
	x.post(ctx, t, m)
	return x.out
}

// Close closes the idle connections. Attempts under way finish, and then their connections are closed.
func (t *Target) Close() { t.client.Close() }
