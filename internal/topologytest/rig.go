package topologytest

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sidecar/internal/apptest"
	"sidecar/internal/broker"
	"sidecar/internal/brokertest"
	"sidecar/internal/consume"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/retry"
	"sidecar/internal/telemetry"
	"sidecar/internal/testkit/must"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

const (
	concurrency = 8
	prefetch    = 64
	requeueMin  = retry.MinRequeueDelay
	requeueMax  = 300 * time.Millisecond
)

// rig is one sidecar on one plan: the parts and the order that app puts them in, without configuration and admin
// surface, and an app on a real socket.
type rig struct {
	t    testing.TB
	plan *topology.Plan
	mode topology.Mode
	url  string
	app  *apptest.App
	log  *journal

	registry *prometheus.Registry
	flow     *flow.Control
	consumer *consume.Consumer
	look     chan struct{}
	found    atomic.Pointer[topology.Plan] // uses what exists; nil: something blocks

	stopOnce sync.Once
	stop     func()
}

// build is a plan of the service orders-svc, unless the options have another one.
func build(t testing.TB, o topology.Options) *topology.Plan {
	t.Helper()
	o.Service = cmp.Or(o.Service, "orders-svc")
	return must.Get(topology.Build(o))(t)
}

// declareTopology makes the plan's objects through a session of its own.
func declareTopology(t testing.TB, url string, plan *topology.Plan) {
	t.Helper()
	if report := ensure(t, url, plan, topology.ModeDeclare); len(report.Findings) > 0 {
		t.Fatalf("declare: %v", report.Findings)
	}
}

// ensure checks a plan, again where the session is lost: on a busy machine a quorum queue that is declared may have no
// leader after five seconds, which costs the session.
func ensure(t testing.TB, url string, plan *topology.Plan, mode topology.Mode) (report declare.Report) {
	t.Helper()
	brokertest.Eventually(t, patience, "the topology is checked", func() bool {
		s := dial(t, url)
		defer s.Close()
		var err error
		report, err = declare.Ensure(t.Context(), s, plan, mode)
		return err == nil
	})
	return report
}

func dial(t testing.TB, url string) *broker.Session {
	t.Helper()
	options := broker.Options{URLs: urls(url), Name: "test " + t.Name(), Timeout: patience}
	return must.Get(broker.NewDialer(options).Dial(t.Context()))(t)
}

func urls(url string) func() ([]string, error) {
	return func() ([]string, error) { return []string{url}, nil }
}

// begin declares the plan and runs a sidecar on it until the test ends.
func begin(t testing.TB, plan *topology.Plan) *rig {
	t.Helper()
	declareTopology(t, brokertest.URL(t), plan)
	return start(t, plan)
}

// start runs a sidecar on the plan, which has to be declared, until the test ends.
func start(t testing.TB, plan *topology.Plan) *rig {
	t.Helper()
	return startIn(t, plan, topology.ModeDeclare)
}

func startIn(t testing.TB, plan *topology.Plan, mode topology.Mode) *rig {
	t.Helper()
	r := &rig{
		t: t, plan: plan, mode: mode, url: brokertest.URL(t), app: apptest.NewApp(t), log: &journal{},
		registry: prometheus.NewRegistry(), look: make(chan struct{}, 1),
	}
	log := telemetry.NewLogger(r.log, "debug", "json")
	dialer := func(name string) *broker.Dialer {
		// Patience: what is confirmed late has been published twice.
		return broker.NewDialer(broker.Options{URLs: urls(r.url), Name: "sidecar " + plan.Service + " " + name, Logger: log,
			Registerer: r.registry, Timeout: patience})
	}
	target := must.Get(dispatch.New(dispatch.Options{
		URL: r.app.URL, Timeout: 2 * patience, RetryAfterMax: 5 * time.Minute, MaxBody: 16 << 20,
		HealthTimeout: time.Second, Forward: []string{"*"}, MaxIdle: concurrency, Logger: log,
		Registerer: r.registry,
	}))(t)
	r.flow = flow.New(flow.Options{
		Concurrency: concurrency, Probe: target.Probe, Interval: time.Second, Connects: true,
		Refused: func(err error) bool { return errors.Is(err, dispatch.ErrRefused) }, Logger: log, Registerer: r.registry,
	})
	publisher := broker.NewPublisher(dialer("publish"))
	r.consumer = consume.New(consume.Options{
		Plan: plan, Policy: retry.Policy{RequeueMin: requeueMin, RequeueMax: requeueMax}, Concurrency: concurrency,
		Prefetch: prefetch, Dispatcher: target, Publisher: publisher, Flow: r.flow, Logger: log, Registerer: r.registry,
		Unroutable: func(_, _ string, _ error) { r.requestCheck() },
		Undelayed: func() {
			r.flow.Hold(flow.Topology, declare.Undelayed(plan).String())
			r.requestCheck()
		},
	})
	r.run(dialer("consume"), publisher, target)
	return r
}

// run starts the parts and says how they end: like app, first the consumer, then the links.
func (r *rig) run(consuming *broker.Dialer, publisher *broker.Publisher, target *dispatch.Target) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:usetesting // it outlives the test's, to drain
	var links sync.WaitGroup
	links.Go(func() { _ = r.flow.Run(ctx) })
	links.Go(func() { _ = publisher.Run(ctx) })
	links.Go(func() { _ = broker.Supervise(ctx, consuming, r.serve) })
	r.stop = func() {
		r.stopOnce.Do(func() {
			grace, done := context.WithTimeoutCause(ctx, 10*time.Second, consume.ErrGrace)
			defer done()
			r.consumer.Drain(grace)
			cancel()
			links.Wait()
			target.Close()
		})
	}
	r.t.Cleanup(func() {
		r.stop()
		if r.t.Failed() {
			r.t.Logf("queues: %v\nthe last lines of the log:\n%s",
				brokertest.Rows(r.t, "queues", "name", "messages_ready", "messages_unacknowledged", "messages"), r.log)
		}
	})
}

var (
	errServed         = errors.New("served")
	errFoundOtherwise = errors.New("the topology has changed in the broker")
)

// serve is one session, as in app: the topology before any message, then a check of it whenever one is asked for.
func (r *rig) serve(ctx context.Context, s *broker.Session) error {
	if err := r.ensure(ctx, s); err != nil {
		return err
	}
	plan := cmp.Or(r.found.Load(), r.plan)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		for {
			select {
			case <-r.look:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if err := r.ensure(ctx, s); err != nil {
				return err
			}
			if found := r.found.Load(); found != nil && !reflect.DeepEqual(found, plan) {
				return errFoundOtherwise
			}
		}
	})
	group.Go(func() error {
		if err := r.consumer.Serve(ctx, s, func() *topology.Plan { return plan }); err != nil {
			return err
		}
		return errServed
	})
	if err := group.Wait(); !errors.Is(err, errServed) {
		return err
	}
	return nil
}

func (r *rig) ensure(ctx context.Context, s *broker.Session) error {
	report, err := declare.Ensure(ctx, s, r.plan, r.mode)
	if err != nil {
		return err
	}
	if findings := report.Blocking(); len(findings) > 0 {
		r.found.Store(nil)
		r.flow.Hold(flow.Topology, findings[0].String())
		return nil
	}
	r.found.Store(report.Plan)
	r.flow.Lift(flow.Topology)
	return nil
}

func (r *rig) requestCheck() {
	select {
	case r.look <- struct{}{}:
	default:
	}
}
