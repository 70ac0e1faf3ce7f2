package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/message"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

const (
	roundTripTimeout = 60 * time.Second
	roundTripDelay   = time.Second // of its one retry
	roundTripPoll    = 50 * time.Millisecond
	removeTimeout    = 10 * time.Second
)

// ErrRoundTrip ends a round trip whose message did not come back, or that could not begin.
var ErrRoundTrip = errors.New("the round trip failed")

// RoundTrip sends one message through the broker and a whole sidecar to an app of its own, which fails once and then takes it:
// publish, consume, POST, retry, the way back, ack. All of it is declared beside the service's queue, under its name with
// ".roundtrip" behind it, and removed in the end; nothing of the service is touched. It prints to w what happened.
func RoundTrip(ctx context.Context, cfg *config.Config, build Build, w io.Writer) error {
	plan, err := newPlan(cfg)
	if err != nil {
		return err
	}
	if cfg.Service.Consume == config.ConsumeOff {
		return fmt.Errorf("%w: SIDECAR_CONSUME=off leaves no way back", ErrRoundTrip)
	}
	if cfg.Topology.Mode != string(topology.ModeDeclare) {
		return fmt.Errorf("%w: it declares queues of its own, and SIDECAR_TOPOLOGY_MODE=%s says that this user declares none", ErrRoundTrip, cfg.Topology.Mode)
	}
	ctx, cancel := context.WithTimeout(ctx, roundTripTimeout)
	defer cancel()
	log := telemetry.NewLogger(io.Discard, "error", "text")
	telemetry.AdoptLibraries(log)
	// Removing has a connection of its own, open from the start: whoever cannot log in shall not declare anything.
	s, err := broker.NewDialer(brokerOptions(cfg, "roundtrip", build, log, nil)).Dial(ctx)
	if err != nil {
		return fmt.Errorf("connect to the broker: %w", err)
	}
	defer s.Close()
	own := newTraveller()
	url, stop, err := own.listen()
	if err != nil {
		return err
	}
	defer stop()
	a, err := New(roundTripConfig(cfg, plan, url), build, io.Discard)
	if err != nil {
		return err
	}
	err = errors.Join(own.travel(ctx, a), remove(s, a.plan))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(w, "ok       round trip: %s was published to %s, failed with 503, waited %s, succeeded with 200 and was acked; its queues are removed\n",
		own.id, a.plan.Queue, roundTripDelay)
	return nil
}

// roundTripConfig is the service's own link to the broker, and nothing else of it.
func roundTripConfig(cfg *config.Config, plan *topology.Plan, url string) *config.Config {
	name := plan.Queue + ".roundtrip"
	queueType := "classic"
	if plan.Quorum {
		queueType = "quorum"
	}
	once := 1
	return &config.Config{
		Service: cfg.Service, AMQP: cfg.AMQP,
		App:    config.App{URL: url, Timeout: 10 * time.Second, HealthInterval: time.Second, HealthTimeout: time.Second},
		Window: config.Window{Concurrency: 1, Prefetch: 2, MaxBody: 1 << 20, Memory: cfg.Window.Memory, SpoolDir: cfg.Window.SpoolDir},
		Retry: config.Retry{
			MaxRetries: &once, Delay: roundTripDelay, AppDown: config.AppDownHold,
			RequeueDelayMin: time.Second, RequeueDelayMax: time.Second, RetryAfterMax: time.Second,
		},
		Topology: config.Topology{
			Preset: topology.PresetFanout, Mode: string(topology.ModeDeclare), QueueType: queueType,
			Exchange: name + ".exchange", Queue: name, RetryExchange: name + ".retry-exchange", RetryQueue: name + ".retry", DLQ: name + ".dlq",
		},
		Listen:  config.Listen{AdminAddr: "127.0.0.1:0", ControlAddr: "127.0.0.1:0"},
		Process: config.Process{ShutdownGrace: 5 * time.Second, LogLevel: "error", LogFormat: "text"},
	}
}

// traveller is the message, and the app that knows it. An earlier trip that was killed may have left one of its own behind:
// that is taken and not looked at.
type traveller struct {
	id    string
	posts atomic.Int32
	home  chan struct{} // closed by its success
}

func newTraveller() *traveller {
	return &traveller{id: "roundtrip-" + rand.Text(), home: make(chan struct{})}
}

func (t *traveller) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Amqp-Message-Id") != t.id {
		return
	}
	switch t.posts.Add(1) {
	case 1:
		w.WriteHeader(http.StatusServiceUnavailable)
	case 2:
		close(t.home)
	}
}

// listen serves the app until stop.
func (t *traveller) listen() (url string, stop func(), err error) {
	var lc net.ListenConfig
	l, err := lc.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen for the message's return: %w", err)
	}
	server := &http.Server{Handler: t, ReadHeaderTimeout: time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l) // ends by stop
	}()
	return "http://" + l.Addr().String() + "/", func() {
		_ = server.Close()
		<-done
	}, nil
}

// travel runs the sidecar until the message has been acked, or cannot be.
func (t *traveller) travel(ctx context.Context, a *App) error {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(running, nil) }()
	err := t.thereAndBack(ctx, a)
	end()
	return errors.Join(err, <-ended)
}

func (t *traveller) thereAndBack(ctx context.Context, a *App) error {
	if err := a.awaitReady(ctx); err != nil {
		return err
	}
	err := a.publisher.Publish(ctx, &broker.Publication{
		Kind: broker.KindOther, Key: a.plan.Queue,
		Msg: amqp.Publishing{MessageId: t.id, ContentType: "text/plain", DeliveryMode: amqp.Persistent, Body: []byte("there and back again")},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrRoundTrip, err)
	}
	acked := func() bool {
		select {
		case <-t.home:
			return a.settled()[message.Ack.String()] > 0
		default:
			return false
		}
	}
	if !until(ctx, acked) {
		return fmt.Errorf("%w: %s was published to %s and came to the app %d times within %s, and was not acked", ErrRoundTrip, t.id, a.plan.Queue, t.posts.Load(), roundTripTimeout)
	}
	return nil
}

// awaitReady waits until messages are taken, and says why they are not.
func (a *App) awaitReady(ctx context.Context) error {
	var why error
	ready := until(ctx, func() bool {
		r := state{a}.Ready()
		if findings, _ := a.fits.last(); len(findings) > 0 {
			f := findings[0]
			why = fmt.Errorf("%w: %s: %s: wanted %s, found %s; %s", ErrRoundTrip, f.Object, f.Problem, f.Wanted, f.Found, f.Fix)
		}
		return why != nil || r.Ready
	})
	if why == nil && !ready {
		why = fmt.Errorf("%w: no messages were taken from %s within %s", ErrRoundTrip, a.plan.Queue, roundTripTimeout)
	}
	return why
}

// until reports whether done became true before ctx ended.
func until(ctx context.Context, done func() bool) bool {
	t := time.NewTicker(roundTripPoll)
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

// remove deletes what a plan of a round trip has declared. It has time of its own: a trip that took too long has left as much.
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
			errs = append(errs, fmt.Errorf("%w: remove the %s %s: %w", ErrRoundTrip, what, name, err))
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
