package sim

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"sidecar/internal/broker"
	"sidecar/internal/consume"
	"sidecar/internal/flow"
	"sidecar/internal/topology"
	"sidecar/internal/topology/declare"
)

// Names of the sidecar's connections.
const (
	consuming  = "consume"
	publishing = "publish"
)

// stopLate is how long a drain may outlast its grace: an attempt that is interrupted ends at once here, and the channel
// stays open a moment for the last settlements.
const stopLate = time.Second

// checkEvery is how often the topology is checked, as in app.
const checkEvery = 15 * time.Second

// sidecar is one process: the parts in the order of app, without configuration, HTTP and signals.
type sidecar struct {
	w        *world
	registry *prometheus.Registry
	flow     *flow.Control
	consumer *consume.Consumer
	checkNow chan struct{}
	severed  atomic.Bool // killed: whatever it still sends, the broker does not receive it

	cancel context.CancelFunc
	links  sync.WaitGroup
	ended  sync.Once
}

var errServed = errors.New("served")

func (w *world) startSidecar() *sidecar {
	s := &sidecar{w: w, registry: prometheus.NewRegistry(), checkNow: make(chan struct{}, 1)}
	log := w.log
	dialer := func(name string) *broker.Dialer {
		return broker.NewDialer(broker.Options{
			URLs: func() ([]string, error) { return []string{"amqp://guest:guest@model/"}, nil }, Name: name, Logger: log,
			Registerer: s.registry,
			Connect:    func(ctx context.Context, _ string) (net.Conn, error) { return s.connect(ctx, name) },
		})
	}
	s.flow = flow.New(flow.Options{
		Concurrency: w.concurrency, Probe: w.app.probe, Interval: time.Second, Connects: true,
		Refused: func(err error) bool { return errors.Is(err, errRefused) }, Logger: log, Registerer: s.registry,
	})
	real := broker.NewPublisher(dialer(publishing))
	var publisher consume.Publisher = real
	if w.bug.publisher != nil {
		publisher = w.bug.publisher(real)
	}
	var target consume.Dispatcher = w.app
	if w.bug.dispatcher != nil {
		target = w.bug.dispatcher(w.app)
	}
	var batches consume.BatchDispatcher = w.app
	if w.bug.batches != nil {
		batches = w.bug.batches(w.app)
	}
	s.consumer = consume.New(consume.Options{
		Plan: w.used, Policy: w.policy, Unroutable: func(_, _ string, _ error) { s.requestCheck() },
		Undelayed:   func() { panic("a message was delivered again at once") },
		Concurrency: w.concurrency, Prefetch: w.prefetch, Dispatcher: target, Publisher: publisher, Flow: s.flow,
		Batch:  consume.Batch{Size: w.gather, Wait: w.wait, Bytes: 300, Dispatcher: batches},
		Logger: log, Registerer: s.registry,
	})
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	consumeDialer := dialer(consuming)
	s.links.Go(func() { _ = s.flow.Run(ctx) })
	s.links.Go(func() { _ = real.Run(ctx) })
	s.links.Go(func() { _ = broker.Supervise(ctx, consumeDialer, s.serve) })
	return s
}

func (s *sidecar) connect(ctx context.Context, name string) (net.Conn, error) {
	if s.severed.Load() {
		return nil, errRefused
	}
	conn, err := s.w.broker.Dial(ctx, name)
	if err != nil || s.w.tamper == nil {
		return conn, err
	}
	return &tampered{Conn: conn, change: s.w.tamper}, nil
}

// serve is one session, as in app: first the topology, then messages, and the manager.
func (s *sidecar) serve(ctx context.Context, session *broker.Session) error {
	if !declare.Compare(ctx, session, s.w.used, s.w.mode) {
		if err := s.ensure(ctx, session); err != nil {
			return err
		}
	} else {
		s.flow.Lift(flow.Topology)
	}
	used := func() *topology.Plan { return s.w.used }
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.watch(ctx, session) })
	group.Go(func() error {
		if err := s.consumer.Serve(ctx, session, used); err != nil {
			return err
		}
		return errServed
	})
	if err := group.Wait(); !errors.Is(err, errServed) {
		return err
	}
	return nil
}

func (s *sidecar) watch(ctx context.Context, session *broker.Session) error {
	t := time.NewTicker(checkEvery)
	defer t.Stop()
	for {
		select {
		case <-s.checkNow:
		case <-t.C:
			m, err := declare.Measure(ctx, session, s.w.used)
			if err != nil {
				return err
			}
			s.report(m.Missing)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := s.ensure(ctx, session); err != nil {
			return err
		}
	}
}

func (s *sidecar) ensure(ctx context.Context, session *broker.Session) error {
	report, err := declare.Ensure(ctx, session, s.w.used, s.w.mode)
	if err != nil {
		return err
	}
	if findings := report.Blocking(); len(findings) > 0 {
		s.flow.Hold(flow.Topology, findings[0].String())
	} else {
		s.flow.Lift(flow.Topology)
	}
	return nil
}

func (s *sidecar) report(findings []declare.Finding) {
	if len(findings) > 0 {
		s.flow.Hold(flow.Topology, findings[0].String())
		s.requestCheck()
	}
}

func (s *sidecar) requestCheck() {
	select {
	case s.checkNow <- struct{}{}:
	default:
	}
}

// stop is a SIGTERM: drain within the grace, then close the connections. It returns when the process would have ended.
func (s *sidecar) stop(grace time.Duration) {
	s.ended.Do(func() {
		ctx, done := context.WithTimeoutCause(context.Background(), grace, consume.ErrGrace)
		defer done()
		started := time.Now()
		s.consumer.Drain(ctx)
		if late := time.Since(started) - grace; late > stopLate {
			s.w.ledger.odd("I9 a drain took %v longer than its grace", late)
		}
		s.cancel()
		s.links.Wait()
		s.w.keep(s)
	})
}

// kill is a SIGKILL. Goroutines cannot be killed, but they can be cut off: nothing they do is received from now on.
func (s *sidecar) kill() {
	s.severed.Store(true)
	s.w.broker.Cut(consuming)
	s.w.broker.Cut(publishing)
	s.stop(0)
}

// keep writes a sidecar's metrics into the ledger.
func (w *world) keep(s *sidecar) {
	families, err := s.registry.Gather()
	if err != nil {
		panic(err)
	}
	b := books{settled: map[string]int{}}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			n := int(m.GetCounter().GetValue())
			switch f.GetName() {
			case "sidecar_messages_received_total":
				b.received += n
			case "sidecar_stale_deliveries_total":
				b.stale += n
			case "sidecar_messages_settled_total":
				for _, l := range m.GetLabel() {
					if l.GetName() == "outcome" {
						b.settled[l.GetValue()] += n
					}
				}
			}
		}
	}
	w.ledger.mu.Lock()
	defer w.ledger.mu.Unlock()
	w.ledger.books = append(w.ledger.books, b)
}

var silent = slog.New(slog.DiscardHandler)
