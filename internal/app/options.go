package app

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sidecar/internal/broker"
	"sidecar/internal/budget"
	"sidecar/internal/config"
	"sidecar/internal/dispatch"
	"sidecar/internal/flow"
	"sidecar/internal/telemetry"
	"sidecar/internal/topology"
)

// The functions of this file translate the configuration into the options of one package each.

func tracingOptions(cfg *config.Config, build Build, plan *topology.Plan, log *slog.Logger) telemetry.TracingOptions {
	t := cfg.Tracing
	if t == nil {
		return telemetry.TracingOptions{}
	}
	return telemetry.TracingOptions{
		Enabled: true, Queue: plan.Queue, AppURL: cfg.App.URL, Resource: t.Resource,
		Version: build.Version, Sampler: t.Sampler, SamplerArg: t.SamplerArg,
		Exporter: telemetry.ExporterOptions{
			Endpoint: t.Endpoint, Headers: t.HeaderValues(), Timeout: t.Timeout, Gzip: t.Compression == "gzip",
			CAFile: t.CAFile, CertFile: t.CertFile, KeyFile: t.KeyFile,
		},
		Logger: log,
	}
}

func dispatchOptions(
	cfg *config.Config, build Build, plan *topology.Plan, memory *budget.Budget, log *slog.Logger, r prometheus.Registerer,
) dispatch.Options {
	return dispatch.Options{
		URL: cfg.App.URL, Timeout: cfg.App.Timeout, RetryAfterMax: cfg.Retry.RetryAfterMax,
		MaxBody: int64(cfg.Window.MaxBody), HealthPath: cfg.App.HealthPath, HealthTimeout: cfg.App.HealthTimeout,
		Forward: cfg.Request.ForwardHeaders, Passthrough: cfg.Request.PassthroughHeaders,
		CloudEvents: cfg.Request.CloudEvents == config.CloudEventsBinary,
		Envelopes:   cfg.Request.CloudEvents == config.CloudEventsStructured,
		Dapr:        cfg.App.ResponseDialect == config.DialectDapr,
		Token:       secret(cfg.App.Token, log), Version: build.Version, MaxIdle: cfg.Window.Concurrency,
		Queue: plan.Queue, Memory: memory.Account(budget.Answers), Logger: log, Registerer: r,
	}
}

// secret reads a secret that the sidecar sends and that may rotate. While its file cannot be read the last good value
// is used: the app decides about it.
func secret(s config.Secret, log *slog.Logger) func() string {
	failures := telemetry.Throttle{Interval: time.Minute}
	return func() string {
		v, err := s.Value()
		if err != nil {
			failures.Do(func(suppressed int) { log.Warn("secret not read", "error", err, "suppressed", suppressed) })
		}
		return v
	}
}

// listenerToken reads the token that requests to a listener must carry. While its file is missing, empty or wrong it is
// "", which no request carries: a token whose file was deleted is revoked.
func listenerToken(s config.Secret, log *slog.Logger) func() string {
	failures := telemetry.Throttle{Interval: time.Minute}
	return func() string {
		v, err := s.Value()
		if err != nil {
			failures.Do(func(suppressed int) {
				log.Warn("token not read", "error", err, "suppressed", suppressed)
			})
			return ""
		}
		return v
	}
}

func flowOptions(cfg *config.Config, plan *topology.Plan, target *dispatch.Target, log *slog.Logger,
	r prometheus.Registerer) flow.Options {
	return flow.Options{
		Queue: plan.Queue, Concurrency: cfg.Window.Concurrency, Probe: target.Probe,
		Refused:  func(err error) bool { return errors.Is(err, dispatch.ErrRefused) },
		Interval: cfg.App.HealthInterval, Connects: cfg.App.HealthPath == "",
		CountRefused: cfg.Retry.AppDown == config.AppDownRetry,
		Logger:       log, Registerer: r,
	}
}

// spoolBytes is how much disk bodies larger than the memory budget may use.
const spoolBytes = 1 << 30

func newSpool(cfg *config.Config) *broker.Spool {
	return broker.NewSpool(cfg.Window.SpoolDir, spoolBytes)
}

// brokerOptions are those of one of the two connections; use says which.
func brokerOptions(cfg *config.Config, use string, build Build, log *slog.Logger,
	r prometheus.Registerer) broker.Options {
	q := &cfg.AMQP
	return broker.Options{
		URLs: q.URLs, Username: q.Username.Value, Password: q.Password.Value,
		TLS: broker.TLSOptions{
			CAFile: q.TLSCAFile, CertFile: q.TLSCertFile, KeyFile: q.TLSKeyFile, ServerName: q.TLSServerName,
		},
		External: q.SASL == config.SASLExternal, Heartbeat: q.Heartbeat,
		Name: fmt.Sprintf("sidecar %s %s", cfg.Service.Name, use), Version: build.Version,
		Logger: log, Registerer: r,
	}
}
