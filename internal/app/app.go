// Package app is the composition root: it builds every part of the sidecar from the configuration, starts the parts in
// order and stops them in the opposite order. It also has functions for the subcommands: Check, RoundTrip, Explain,
// RenderPlan, PresetValues and DeadLetters. It does not judge, route or settle messages: it sets the options of the
// packages that do.
package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/admin"
	"sidecar/internal/admin/dlq"
	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/deadletter"
	"sidecar/internal/publish"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// Build says which build this is.
type Build struct{ Version, Commit string }

// shared is what the parts are built from.
type shared struct {
	cfg        *config.Config // of a subscription: its own
	build      Build
	log        *slog.Logger
	registry   *prometheus.Registry
	budget     *budget.Budget // memory for everything that is received
	spool      *broker.Spool  // disk for bodies that do not fit into it
	redeclared *declare.RedeclaredTotal
	each       func(do func(*subscription)) // calls do for every subscription, not before New returns
	tracing    *telemetry.Tracing
	probes     probes // of the apps
	limits     limits // of all subscriptions together
	alarm      *broker.Alarm

	publisher *broker.Publisher // of retries and parked messages; nil when nothing is consumed
}

// App is one sidecar.
type App struct {
	shared

	started time.Time
	plan    *topology.Plan // of cfg: what the listeners show, also when nothing is consumed

	subscriptions []*subscription // none when the sidecar only publishes
	dialer        *broker.Dialer  // of the connection that they consume on, with a channel each
	senders       []sender        // of what the app publishes
	endpoint      *publish.Server // of one of them; nil without a listener for messages of the app
	admin         *admin.Server

	depths   *declare.Depths
	measured time.Time // when Flow last asked for the depths of the queues

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
	owners, err := ownersOf(cfg.Subscribed())
	if err != nil {
		return nil, err
	}
	only := []string{plan.Queue}
	if len(cfg.Subscriptions) > 0 {
		only = nil
	}
	a := &App{
		shared: shared{
			cfg: cfg, build: build,
			log:      telemetry.NewLogger(w, cfg.Process.LogLevel, cfg.Process.LogFormat, only...),
			registry: telemetry.NewRegistry(build.Version, build.Commit),
			budget:   budget.New(int64(cfg.Window.Memory)), spool: newSpool(cfg), probes: probes{},
			limits: newLimits(cfg),
		},
		started: time.Now(), plan: plan,
		drainAsk: make(chan struct{}), draining: make(chan struct{}), drained: make(chan struct{}),
	}
	a.budget.Register(a.registry)
	a.depths, a.redeclared = declare.NewDepths(a.registry, a.lastDepths), declare.NewRedeclaredTotal(a.registry)
	a.each = a.eachSubscription
	a.alarm = broker.NewAlarm(a.log)
	telemetry.AdoptLibraries(a.log)
	if cfg.Tracing != nil {
		o, err := a.tracingOptions()
		if err != nil {
			return nil, err
		}
		a.tracing = telemetry.NewTracing(o)
	}
	if err := a.subscribe(owners); err != nil {
		a.abandon()
		return nil, err
	}
	if cfg.Outbox.DSN.IsSet() {
		a.senders = append(a.senders, newRelay(a.shared, plan))
	}
	if cfg.Publish.Addr != "" {
		var s sender
		a.endpoint, s = newEndpoint(a.shared, plan, owners)
		a.senders = append(a.senders, s)
	}
	a.listeners(owners)
	return a, nil
}

// eachSubscription calls do with every subscription.
func (a *App) eachSubscription(do func(*subscription)) {
	for _, s := range a.subscriptions {
		do(s)
	}
}

// abandon ends a sidecar that has not run.
func (a *App) abandon() {
	for _, s := range a.subscriptions {
		s.abandon()
	}
	a.flushTraces()
}

// parts returns the parts of the sidecar in the order of their start. The senders run until the end: an app may publish
// while it shuts down.
func (a *App) parts() (base, senders, consumers []part) {
	base = []part{
		{name: "admin", run: a.admin.Serve, stop: func(t stopTime) {
			ctx, cancel := context.WithTimeout(context.Background(), max(time.Until(t.until), 2*time.Second))
			defer cancel()
			defer context.AfterFunc(t.now, func() { time.AfterFunc(2*time.Second, cancel) })()
			a.admin.Shutdown(ctx)
		}},
		{name: "memory", run: a.freeMemory},
	}
	for _, s := range a.senders {
		senders = append(senders, s.connected())
	}
	if len(a.subscriptions) > 0 {
		consumers = []part{{name: "subscriptions", run: a.consume, stop: a.drainAll}}
	}
	return base, senders, consumers
}

// listen binds every address, and logs what is started and where it listens.
func (a *App) listen() error {
	addrs, err := a.admin.Listen()
	if err != nil {
		return err
	}
	listening := []any{"admin", addrs.Admin, "control", addrs.Control}
	if a.endpoint != nil {
		addr, err := a.endpoint.Listen()
		if err != nil {
			a.admin.Shutdown(context.Background())
			return err
		}
		listening = append(listening, "publish", addr)
	}
	for _, w := range a.warnings() {
		a.log.Warn("configuration", "warning", w)
	}
	a.log.Info("listening", listening...)
	a.logStarted()
	return nil
}

// shown is no text for a log: a line of text leaves out the name of the only queue.
type shown string

// logStarted logs what runs. Without a queue that is consumed there is neither queue nor app.
func (a *App) logStarted() {
	attrs := []any{"version", a.build.Version, "commit", a.build.Commit, "service", a.cfg.Service.Name}
	if c := consumed(a.subscriptions); c != nil {
		bindings := make([]string, len(c.Bindings))
		for i, b := range c.Bindings {
			if bindings[i] = b.Exchange + ":" + b.Key; len(b.Args) > 0 {
				bindings[i] += strings.TrimPrefix(fmt.Sprint(b.Args), "map")
			}
		}
		attrs = append(attrs, "queue", shown(c.Queue), "topology", c.Topology, "bindings", strings.Join(bindings, ","),
			"url", c.App.URL)
	}
	a.log.Info("started", attrs...)
}

// warnings are about settings that work, and may surprise. Never nil: in JSON they are a list, also when there are
// none.
func (a *App) warnings() []string {
	all := append([]string{}, a.cfg.Warnings()...)
	for _, s := range a.subscriptions {
		for _, text := range s.warnings(nil) {
			if s.cfg.Subscription != "" {
				text = s.cfg.Subscription + ": " + text
			}
			all = append(all, text)
		}
	}
	return append(all, outboxWarnings(a.cfg)...)
}

func (a *App) flushTraces() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	if err := a.tracing.Shutdown(ctx); err != nil { // spans are not worth an exit code
		a.log.Warn("traces not flushed", "error", err)
	}
}

// listeners builds the listeners for operators.
func (a *App) listeners(owners []deadletter.Owner) {
	queues := newDeadLetters(a.shared, owners, OnHost("api"), a.registry) // the log has the client
	dead := dlq.New(dlq.Options{Service: a.cfg.Service.Name, Logger: a.log, Queues: queues})
	if len(owners) == 0 {
		owners = []deadletter.Owner{{Plan: a.plan}}
	}
	views := make([]admin.Topology, len(owners))
	for i, o := range owners {
		views[i] = topologyView(o.Name, o.Plan)
	}
	l := &a.cfg.Listen
	a.admin = admin.New(admin.Options{
		AdminAddr: l.AdminAddr, ControlAddr: l.ControlAddr, Grace: a.cfg.Process.ShutdownGrace,
		Token: listenerToken(l.ControlToken, a.log), ReadToken: listenerToken(l.ControlReadToken, a.log),
		State: a, Topologies: views, DeadLetters: dead,
		Memory: a.budget.Account(budget.Requests), Gatherer: a.registry, Logger: a.log,
	})
}

// ownersOf returns the names and the plans of subscriptions.
func ownersOf(subscribed []*config.Config) (owners []deadletter.Owner, err error) {
	for _, cfg := range subscribed {
		plan, err := newPlan(cfg)
		if err != nil {
			return nil, err
		}
		owners = append(owners, deadletter.Owner{Name: cfg.Subscription, Plan: plan})
	}
	return owners, nil
}

// DeadLetters builds the dead-letter queues of the configured topologies for a command. by is the user and the host
// that run it, see OnHost. DeadLetters opens no connection and logs nothing. Topologies without such a queue are
// ErrConfig and deadletter.ErrNoQueue.
func DeadLetters(cfg *config.Config, build Build, by string) (deadletter.Queues, error) {
	subscribed := cfg.Subscriptions
	if len(subscribed) == 0 {
		subscribed = []*config.Config{cfg}
	}
	owners, err := ownersOf(subscribed)
	if err != nil {
		return nil, err
	}
	memory := int64(cfg.Window.Memory)
	if MemoryLimit() > 0 { // perhaps of a container with a sidecar, whose budget leaves a quarter for everything else
		memory /= 8
	}
	sh := shared{cfg: cfg, build: build, budget: budget.New(memory), spool: newSpool(cfg)}
	q := newDeadLetters(sh, owners, by, nil)
	if len(q) == 0 {
		return nil, fmt.Errorf("%w: %w", ErrConfig, deadletter.ErrNoQueue)
	}
	return q, nil
}

// OnHost returns user with the name of this host, as messages and logs name who acts.
func OnHost(user string) string {
	if host, err := os.Hostname(); err == nil {
		user += "@" + host
	}
	return user
}

// CommandLog returns the log of a command that changes something, in the format of the sidecar's own.
func CommandLog(cfg *config.Config, w io.Writer) *slog.Logger {
	return telemetry.NewLogger(w, "info", cfg.Process.LogFormat)
}
