// Package publish takes messages from the app over HTTP and publishes them. It answers 204 when the broker has
// confirmed a message and routed it; every other answer names the cause. The mapping of headers to properties is the
// inverse of the one in package dispatch. It does not consume.
package publish

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/httpguard"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
)

// Options is what a Server needs.
type Options struct {
	Addr string // host:port; port 0 takes a free one

	// Token returns the bearer token that every request must carry; nil means none, which only a loopback Addr allows.
	// While Token returns "", because its file is missing, every request is refused.
	Token func() string

	Exchanges   map[string]string // by alias, which is in the path; "" is the broker's default exchange
	Bindings    map[string]string // keys by which the service's queues are bound, by exchange
	RoutingKeys []string          // patterns that a routing key must match one of; '*' is any bytes, '?' is one

	MaxBody     int64         // bytes of one body
	MaxInflight int           // messages at once; 0 = 256
	Timeout     time.Duration // from the arrival of a message to its confirm

	Publisher  *broker.Publisher // with a connection of its own
	Memory     *budget.Account   // asked before bytes of a request are held; nil bounds nothing
	Tracing    *telemetry.Tracing
	Registerer prometheus.Registerer
	Logger     *slog.Logger
}

// Server is the listener. Listen, Serve and Shutdown are called once each, in this order.
type Server struct {
	o        Options
	listener *httpguard.Server
	keys     message.Globs
	lanes    map[string]*broker.Lane // by exchange
	aliases  map[string]string       // by exchange: the first one
	inflight httpguard.Slots         // held by messages that are no part of a batch
	underway atomic.Int64            // messages that wait for their confirm
	arrivals arrivals
	batches  httpguard.Slots
	growing  httpguard.Slots // held by the one batch that waits for memory for the rest of a line
	maxItems int             // of a batch
	metrics  *metrics
	refusals telemetry.Throttle // log lines about requests that are not allowed
	failures telemetry.Throttle // log lines about messages that were not published
	stopping atomic.Bool
}

// Bounds of the listener.
const (
	headerTimeout  = 5 * time.Second
	answerTimeout  = 5 * time.Second // to write an answer
	idleTimeout    = 2 * time.Minute
	maxConns       = 1024
	maxHeaderBytes = 192 << 10 // above a frame of the broker, which is what really bounds them
)

// New returns a server that has not bound its address yet.
func New(o Options) *Server {
	o.MaxInflight = cmp.Or(o.MaxInflight, 256)
	s := &Server{
		o: o, keys: message.NewGlobs(o.RoutingKeys, false), maxItems: maxItems,
		lanes: map[string]*broker.Lane{}, aliases: map[string]string{},
		arrivals: arrivals{slowAfter: slowAfter, all: map[*arrival]struct{}{}},
		inflight: make(httpguard.Slots, o.MaxInflight), batches: make(httpguard.Slots, maxBatches),
		growing: make(httpguard.Slots, 1),
	}
	s.metrics = newMetrics(o.Registerer, o.Exchanges, &s.underway)
	for _, alias := range slices.Sorted(maps.Keys(o.Exchanges)) {
		exchange := o.Exchanges[alias]
		if s.lanes[exchange] == nil {
			s.lanes[exchange], s.aliases[exchange] = o.Publisher.NewLane(exchange), alias
		}
	}
	s.listener = &httpguard.Server{
		Purpose: "publishing", Variable: "SIDECAR_PUBLISH_ADDR", Token: o.Token != nil, Conns: maxConns, Memory: o.Memory,
		Direct: publishPath,
		Server: &http.Server{
			Addr:              o.Addr,
			Handler:           http.HandlerFunc(s.serve),
			ReadHeaderTimeout: headerTimeout,
			ReadTimeout:       o.Timeout,                   // a message has arrived by then
			WriteTimeout:      2*o.Timeout + answerTimeout, // both begin with the request
			IdleTimeout:       idleTimeout,
			MaxHeaderBytes:    maxHeaderBytes,
			ErrorLog:          telemetry.LibraryLog(o.Logger, "http"),
		},
	}
	return s
}

// Listen binds the address and returns it as host:port. Without a token only loopback is allowed.
func (s *Server) Listen() (string, error) { return s.listener.Listen() }

// Serve answers until Shutdown, then returns nil. It also ends, without waiting for requests, with ctx.
func (s *Server) Serve(ctx context.Context) error {
	defer context.AfterFunc(ctx, s.Close)()
	err := s.listener.Serve()
	if err != nil {
		s.Close()
	}
	return err
}

// Shutdown refuses new messages and waits until ctx ends for the messages under way; then it cuts their requests off,
// which is not an error. The publisher's connection must stay open until Shutdown returns.
func (s *Server) Shutdown(ctx context.Context) {
	s.stopping.Store(true)
	if err := s.listener.Shutdown(ctx); err != nil {
		s.o.Logger.Warn("publish requests cut off", "inflight", s.underway.Load(), "error", err)
	}
	s.Close()
}

// Close ends everything now.
func (s *Server) Close() {
	s.stopping.Store(true)
	s.listener.Close()
}

// Problem returns the code with which a message would be refused now; empty when it would be tried.
func (s *Server) Problem() string {
	if f := s.ready(); f != nil {
		return string(f.code)
	}
	return ""
}
