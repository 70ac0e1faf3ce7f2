// Package app is the composition root: it builds every part from the configuration, starts them in order and stops
// them in the opposite order. It holds no logic of its own about messages.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/consume"
	"sidecar/internal/crash"
	"sidecar/internal/deadletter"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// Build says which build this is.
type Build struct{ Version, Commit string }

// App is one sidecar.
type App struct {
	cfg      *config.Config
	build    Build
	log      *slog.Logger
	registry *prometheus.Registry
	budget   *budget.Budget // memory for bytes of others
	spool    *broker.Spool  // disk for those that it cannot hold
	plan     *topology.Plan
	started  time.Time

	tracing   *telemetry.Tracing
	target    *dispatch.Target
	flow      *flow.Control
	crashes   *crash.Guard // nil when crashes are not counted
	consuming *broker.Dialer
	publisher *broker.Publisher
	consumer  *consume.Consumer
	watcher   *topology.Watcher
	relay     *relay // nil: there is no outbox
	admin     *admin.Server

	endpoint *endpoint // nil: no listener for it

	deadLetters *deadletter.Queue // nil: the topology has none, or nothing is consumed
	measure     chan struct{}     // asks for the depths of the queues; capacity 1
	asked       atomic.Int64      // when it was last asked for them, in nanoseconds since the start

	checkEvery time.Duration // checkInterval; tests shorten it before Run

	look      chan struct{} // asks for a look at the topology; capacity 1
	fits      fitness       // whether the topology fits, as last seen
	oneByOne  bool          // how serve looks at it: see ensureFirst
	atOnce    int           // how often looking at all of it at once has failed
	connected atomic.Bool   // the consume connection is up
	drainAsk  chan struct{} // closed by the first request to drain
	drainOnce sync.Once
	draining  chan struct{} // closed when the drain begins
	drained   chan struct{} // closed when it has ended
}

// New builds a sidecar that logs to w. It opens no connection. An error of the configuration is ErrConfig.
func New(cfg *config.Config, build Build, w io.Writer) (*App, error) {
	plan, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	a := &App{
		cfg: cfg, build: build, plan: plan, started: time.Now(),
		log:        telemetry.NewLogger(w, cfg.Process.LogLevel, cfg.Process.LogFormat),
		registry:   telemetry.NewRegistry(build.Version, build.Commit),
		checkEvery: checkInterval,
		look:       make(chan struct{}, 1), measure: make(chan struct{}, 1), drainAsk: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{}),
	}
	a.budget, a.spool = budget.New(int64(cfg.Window.Memory)), newSpool(cfg)
	a.registry.MustRegister(a.budget)
	a.asked.Store(-int64(askEvery)) // the first time is at once
	telemetry.AdoptLibraries(a.log)
	if a.tracing, err = telemetry.NewTracing(context.Background(), tracingOptions(cfg, build, plan, a.log)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if a.target, err = dispatch.New(dispatchOptions(cfg, build, plan, a.budget, a.log, a.consumeRegistry())); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	a.flow = flow.New(flowOptions(cfg, plan, a.target, a.log, a.consumeRegistry()))
	a.newBroker()
	if a.crashes, err = newCrashGuard(cfg, plan, a.log); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	a.consumer = consume.New(consume.Options{
		Plan: plan, Policy: newPolicy(cfg), Concurrency: cfg.Window.Concurrency, Prefetch: cfg.Window.Prefetch,
		Unproven: cfg.Topology.Mode != string(topology.ModeDeclare), Unroutable: a.unroutable,
		Crashes: a.crashes, AppGone: a.appGone,
		Dispatcher: a.target, Publisher: a.publisher, Flow: a.flow, Tracing: a.tracing,
		Logger: a.log, Registerer: a.consumeRegistry(),
	})
	if a.consumes() {
		a.deadLetters, err = newDeadLetters(cfg, build, plan, a.budget, a.spool, apiActor(), a.log, a.registry)
		if err != nil && !errors.Is(err, deadletter.ErrNoQueue) {
			return nil, fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	a.relay = newRelay(cfg, build, plan, a.budget, a.tracing, a.log, a.registry)
	a.endpoint = a.newEndpoint()
	a.admin = admin.New(a.adminOptions())
	return a, nil
}
