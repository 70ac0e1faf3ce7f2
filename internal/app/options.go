package app

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/consume"
	"sidecar/internal/deadletter"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/outbox"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// The functions of this file translate the configuration into the options of one package each.

func (sh *shared) tracingOptions() (telemetry.TracingOptions, error) {
	t := sh.cfg.Tracing
	tls, err := broker.TLSConfig(broker.TLSOptions{CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile}, "")
	if err != nil {
		err = fmt.Errorf("%w: trace collector: %w", ErrConfig, err)
	}
	return telemetry.TracingOptions{
		Resource: t.Resource, Version: sh.build.Version, Sampler: t.Sampler, SamplerArg: t.SamplerArg,
		Endpoint: t.Endpoint, Headers: t.Headers(), Timeout: t.Timeout, Gzip: t.Compression == "gzip", TLS: tls,
		Logger: sh.log,
	}, err
}

func (s *subscription) dispatchOptions() dispatch.Options {
	cfg := s.cfg
	o := dispatch.Options{
		URL: cfg.App.URL, Routes: cfg.App.Routes, Unrouted: cfg.App.RoutesElse == config.RouteApp,
		Timeout: cfg.App.Timeout, RetryAfterMax: cfg.Retry.RetryAfterMax,
		MaxBody:    int64(cfg.Window.MaxBody),
		HealthPath: cfg.App.HealthPath, HealthTimeout: max(cfg.App.HealthInterval, time.Second),
		DefaultType: cfg.Request.DefaultContentType,
		Forward:     cfg.Request.ForwardHeaders, Passthrough: cfg.Request.PassthroughHeaders,
		CloudEvents: cfg.Request.CloudEvents == config.CloudEventsBinary,
		Envelopes:   cfg.Request.CloudEvents == config.CloudEventsStructured,
		Dapr:        cfg.App.ResponseDialect == config.DialectDapr,
		Answer:      int(cfg.Retry.ParkAnswer),
		Token:       appToken(cfg.App.Token, s.log),
		Version:     s.build.Version, MaxIdle: cfg.Window.Concurrency,
		Memory: s.budget.Account(budget.Answers), Logger: s.log, Registerer: s.metrics,
	}
	if cfg.Window.BatchSize > 1 {
		o.BatchFormat = cfg.Window.BatchFormat
	}
	return o
}

// batchOptions are the zero value without batches. A message that is too large for a POST is found by the dispatcher,
// when it is alone.
func (s *subscription) batchOptions() consume.Batch {
	w := &s.cfg.Window
	if w.BatchSize < 2 {
		return consume.Batch{}
	}
	return consume.Batch{
		Size: w.BatchSize, Wait: w.BatchWait, Bytes: int64(min(config.BatchBytes, w.MaxBody)), Dispatcher: s.target,
	}
}

// appToken reads the token that is sent to the app: the last good one, because the app decides about it. Errors, of a
// file that is missing, empty or wrong, are reported at most once a minute.
func appToken(s config.Secret, log *slog.Logger) func() string {
	failures := telemetry.Throttle{Interval: time.Minute}
	return func() string {
		v, err := s.Value()
		if err != nil {
			failures.Do(func(n int) { log.Warn("secret not read", "error", err, "suppressed", n) })
		}
		return v
	}
}

// listenerToken reads the token that requests to a listener must carry; nil when none is configured. A token whose file
// was deleted is revoked: no request carries "".
func listenerToken(s config.Secret, log *slog.Logger) func() string {
	if !s.IsSet() {
		return nil
	}
	failures := telemetry.Throttle{Interval: time.Minute}
	return func() string {
		v, err := s.Value()
		if err != nil {
			failures.Do(func(n int) { log.Warn("token not read", "error", err, "suppressed", n) })
			return ""
		}
		return v
	}
}

func (sh *shared) outboxOptions(p *broker.Publisher, plan *topology.Plan) outbox.Options {
	cfg := sh.cfg
	return outbox.Options{
		Database: outbox.Database{
			DSN: cfg.Outbox.DSN.Value, Name: fmt.Sprintf("sidecar %s outbox", cfg.Service.Name),
		},
		Names:    outbox.ParseTable(cfg.Outbox.Table, cfg.Outbox.Columns),
		Exchange: outboxExchange(cfg, plan), DefaultType: cfg.Request.DefaultContentType,
		PollInterval: cfg.Outbox.PollInterval, Retention: cfg.Outbox.Retention,
		Publisher: p, Memory: sh.budget.Account(budget.Outbox),
		Tracing: sh.tracing, Logger: sh.log, Registerer: sh.registry,
	}
}

func (s *subscription) flowOptions() flow.Options {
	cfg := s.cfg
	return flow.Options{
		Concurrency: cfg.Window.Concurrency, Probe: s.probes.of(&cfg.App, s.target.Origin(), s.target.Probe).run,
		Refused:  func(err error) bool { return errors.Is(err, dispatch.ErrRefused) },
		Interval: cfg.App.HealthInterval, Connects: cfg.App.HealthPath == "",
		CountRefused: cfg.Retry.AppDown == config.AppDownRetry, Health: s.healthURL(),
		URL: shownURL(cfg.App.URL), Routes: len(cfg.App.Routes), ParkOn: cfg.Retry.ParkOnStatus,
		Logger: s.log, Registerer: s.metrics,
	}
}

// healthURL returns the URL of the health check, without the parts that may be secret; "" when there is none.
func (s *subscription) healthURL() string {
	path, _, _ := strings.Cut(s.cfg.App.HealthPath, "?")
	if path == "" {
		return ""
	}
	return shownURL(s.target.Origin()) + path
}

func newSpool(cfg *config.Config) *broker.Spool {
	const most = 1 << 30 // bytes of disk for bodies larger than the memory budget
	return broker.NewSpool(cfg.Window.SpoolDir, most)
}

// brokerOptions are those of a connection without log and metrics; use says which one.
func brokerOptions(cfg *config.Config, use string, build Build) broker.Options {
	q := &cfg.AMQP
	return broker.Options{
		URLs: q.URLs, Username: q.Username.Value, Password: q.Password.Value,
		TLS: broker.TLSOptions{
			CAFile: q.TLSCAFile, CertFile: q.TLSCertFile, KeyFile: q.TLSKeyFile, ServerName: q.TLSServerName,
		},
		External: q.External(),
		Name:     fmt.Sprintf("sidecar %s %s", cfg.Service.Name, use), Version: build.Version,
	}
}

func (sh *shared) brokerOptions(use string) broker.Options {
	o := brokerOptions(sh.cfg, use, sh.build)
	o.Logger, o.Registerer, o.Alarm = sh.log, sh.registry, sh.alarm
	return o
}

// newPublisher returns a publisher whose user may publish to the exchange.
func (sh *shared) newPublisher(use, exchange string) *broker.Publisher {
	o := sh.brokerOptions(use)
	o.Exchange = exchange
	o.Missing = sh.checkMissing
	return broker.NewPublisher(broker.NewDialer(o))
}

// checkMissing asks every subscription for a check of its topology: at most one for each in checkCounts. A command has
// none. After a returned message only those are asked whose plan would have routed it: clients publish with keys that
// nothing is bound to, again and again, and no check repairs that.
func (sh *shared) checkMissing(why error) {
	if sh.each == nil {
		return
	}
	back, returned := errors.AsType[*broker.ReturnedError](why)
	sh.each(func(s *subscription) {
		if !returned || s.plan.MayRoute(back.Exchange, back.Key) {
			s.requestCheck()
		}
	})
}

// newDeadLetters returns queues whose operations make a connection each, without its log and metrics, and return its
// error. Only a resource alarm is logged, if sh has an alarm.
func newDeadLetters(sh shared, owners []deadletter.Owner, by string, r prometheus.Registerer) deadletter.Queues {
	o := brokerOptions(sh.cfg, "dlq", sh.build)
	o.Memory, o.Spool, o.Alarm = sh.budget.Account(budget.DeadLetters), sh.spool, sh.alarm
	o.Missing = sh.checkMissing
	return deadletter.New(deadletter.Options{Broker: o, By: by, Logger: sh.log, Registerer: r}, owners...)
}

// singleActive reports whether the service's queue needs a single active consumer.
func singleActive(cfg *config.Config) bool {
	return cfg.Retry.OrderBy != "" && cfg.Retry.OrderScope != "replica"
}
