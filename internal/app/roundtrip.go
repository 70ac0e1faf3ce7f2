package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/message"
	"sidecar/internal/topology"
)

const (
	roundTripTimeout = 60 * time.Second
	roundTripDelay   = time.Second // of its one retry
	untilPoll        = 50 * time.Millisecond
	removeTimeout    = 10 * time.Second
)

// errRoundTrip is a round trip whose message was not delivered a second time, or that could not begin.
var errRoundTrip = errors.New("the round trip failed")

// RoundTrip sends one message through the broker and a whole sidecar to an app of its own, which fails once and then
// accepts it: publish, consume, POST, retry, second delivery, ack. Its objects are named after the service's queue with
// ".roundtrip" appended, and are removed in the end; no object of the service is touched. It prints the result to w.
func RoundTrip(ctx context.Context, cfg *config.Config, build Build, w io.Writer) error {
	plan, err := newPlan(cfg)
	if err != nil {
		return err
	}
	if cfg.Service.Consume == config.ConsumeOff {
		return fmt.Errorf("%w: SIDECAR_CONSUME=off, so no message can be delivered", errRoundTrip)
	}
	if modeOf(cfg) != topology.ModeDeclare {
		return fmt.Errorf("%w: it declares queues of its own, and SIDECAR_TOPOLOGY_MODE=%s does not allow that",
			errRoundTrip, cfg.Topology.Mode)
	}
	ctx, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	// Removing has a connection of its own, open from the start: without a login nothing must be declared.
	s, err := dial(ctx, cfg, "roundtrip", build)
	if err != nil {
		return err
	}
	defer s.Close()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return fmt.Errorf("listen for the message: %w", err)
	}
	app := probeApp{id: "roundtrip-" + rand.Text()}
	server := &http.Server{Handler: &app, ReadHeaderTimeout: time.Second}
	var serving sync.WaitGroup
	defer serving.Wait()
	defer server.Close()                       //nolint:errcheck // nothing is left to do about it
	serving.Go(func() { _ = server.Serve(l) }) // ends by Close
	a, err := New(roundTripConfig(cfg, plan, "http://"+l.Addr().String()+"/"), build, io.Discard)
	if err != nil {
		return err
	}
	if err := errors.Join(app.travel(ctx, a), remove(s, a.plan)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "ok       round trip: %s was published to %s, failed with 503, waited %s, succeeded with 200 "+
		"and was acked; its queues are removed\n", app.id, a.plan.Queue, roundTripDelay)
	return nil
}

// roundTripConfig returns a configuration that shares only the connection to the broker with the service's.
func roundTripConfig(cfg *config.Config, plan *topology.Plan, url string) *config.Config {
	name := plan.Queue + ".roundtrip"
	queueType := "classic"
	if plan.Quorum {
		queueType = "quorum"
	}
	once := 1
	t := config.Topology{
		Preset: topology.PresetFanout, Mode: string(topology.ModeDeclare), QueueType: queueType,
		Exchange: name + ".exchange", Queue: name,
		RetryExchange: name + ".retry-exchange", RetryQueue: name + ".retry", DLQ: name + ".dlq",
	}
	if plan.DelaysItself() {
		t.Preset, t.RetryExchange, t.RetryQueue = topology.PresetNative, "", ""
	}
	return &config.Config{
		Service: cfg.Service, AMQP: cfg.AMQP,
		App: config.App{URL: url, Timeout: 10 * time.Second, HealthInterval: time.Second},
		Window: config.Window{
			Concurrency: 1, Prefetch: 2, MaxBody: 1 << 20, Memory: cfg.Window.Memory, SpoolDir: cfg.Window.SpoolDir,
		},
		Retry: config.Retry{
			MaxRetries: &once, Delay: roundTripDelay, AppDown: config.AppDownHold,
			RequeueDelayMax: time.Second, RetryAfterMax: time.Second,
		},
		Topology: t,
		Listen:   config.Listen{AdminAddr: "127.0.0.1:0", ControlAddr: "127.0.0.1:0"},
		Process:  config.Process{ShutdownGrace: 5 * time.Second, LogLevel: "error", LogFormat: "text"},
	}
}

// probeApp is the app of a round trip. It accepts every message but its own at once: a killed round trip may have left
// a message. It fails the first POST of its own.
type probeApp struct {
	id    string // of its message
	posts atomic.Int32
}

func (p *probeApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Amqp-Message-Id") == p.id && p.posts.Add(1) == 1 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// travel runs the sidecar until the message was acked, or an error.
func (p *probeApp) travel(ctx context.Context, a *App) error {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running, context.WithoutCancel(ctx)) }()
	err := p.retryOnce(ctx, a)
	end()
	return errors.Join(err, <-ended)
}

func (p *probeApp) retryOnce(ctx context.Context, a *App) error {
	if err := a.awaitReady(ctx); err != nil {
		return err
	}
	var err error
	until(ctx, func() bool { // messages may be consumed before there is a connection to publish on
		err = a.subscriptions[0].publisher.Publish(ctx, &message.Publication{
			Kind: message.KindOther, Key: a.plan.Queue,
			Msg: amqp.Publishing{
				MessageId: p.id, ContentType: "text/plain", DeliveryMode: amqp.Persistent, Body: []byte("round trip"),
			},
		})
		return !errors.Is(err, broker.ErrDisconnected)
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errRoundTrip, err)
	}
	if !until(ctx, func() bool {
		return p.posts.Load() > 1 && a.settledByOutcome()[message.Ack.String()] > 0
	}) {
		return fmt.Errorf("%w: %s was published to %s, POSTed %d times within %s, and not acked",
			errRoundTrip, p.id, a.plan.Queue, p.posts.Load(), roundTripTimeout)
	}
	return nil
}

// awaitReady waits until messages are consumed, or returns the reason why they are not.
func (a *App) awaitReady(ctx context.Context) error {
	var why error
	ready := until(ctx, func() bool {
		r := a.Ready("")
		if findings, _ := a.subscriptions[0].status.last(); len(findings) > 0 {
			f := findings[0]
			why = fmt.Errorf("%w: %s: %s: wanted %s, found %s; %s", errRoundTrip, f.Object, f.Problem, f.Wanted, f.Found, f.Fix)
		}
		return why != nil || r.Ready
	})
	if why == nil && !ready {
		why = fmt.Errorf("%w: no messages were consumed from %s within %s", errRoundTrip, a.plan.Queue, roundTripTimeout)
	}
	return why
}

// until reports whether done became true before ctx ended.
func until(ctx context.Context, done func() bool) bool {
	t := time.NewTicker(untilPoll)
	defer t.Stop()
	for {
		if done() {
			return true
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return false
		}
	}
}

// remove deletes the objects of a round trip. It has a deadline of its own: they also remain after a trip that timed
// out.
func remove(s *broker.Session, plan *topology.Plan) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
	defer cancel()
	var errs []error
	drop := func(what, name string, fn func(*amqp.Channel) error) {
		ch, err := s.Channel(ctx) // a refusal ends the channel
		if err == nil {
			err = s.Do(ctx, "delete", func() error { return fn(ch) })
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%w: remove the %s %s: %w", errRoundTrip, what, name, err))
		}
	}
	for _, q := range plan.Queues {
		drop("queue", q.Name, func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(q.Name, false, false, false)
			return err
		})
	}
	for _, x := range plan.Exchanges {
		drop("exchange", x.Name, func(ch *amqp.Channel) error { return ch.ExchangeDelete(x.Name, false, false) })
	}
	return errors.Join(errs...)
}
