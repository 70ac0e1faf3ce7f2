// Package config turns environment variables into a Config and is the only reader of the environment. It connects to
// nothing and declares nothing. It refuses to guess: a value it does not understand is a problem to report, never a
// reason to fall back to a default, and every problem is reported in one go.
//
// The comments of the structs below are the text of docs/configuration.md.
package config

import (
	"time"
)

//go:generate go run ../../scripts/gendoc ../../docs/configuration.md ../../deploy/helm/amqp-sidecar-lib/templates/_presets.tpl

// Config is the whole configuration, checked. Printing it never shows a secret.
type Config struct {
	// Who consumes. All names in the broker are made from this one, unless they are set one by one (see *Topology*).
	Service Service `section:"Service" prefix:"SIDECAR_"`

	// Where RabbitMQ is and who we are there. Credentials and certificates are read again at every dial, so they can be
	// rotated without a restart.
	AMQP AMQP `section:"Broker" prefix:"SIDECAR_"`

	// Where messages are POSTed to, and how the answers are read.
	App App `section:"App" prefix:"SIDECAR_" scope:"subscription"`

	// How many messages are held and POSTed at a time.
	Window Window `section:"Concurrency and memory" prefix:"SIDECAR_" scope:"subscription"`

	// What happens to a message that did not get a 2xx.
	Retry Retry `section:"Retries and parking" prefix:"SIDECAR_" scope:"subscription"`

	// Exchanges, queues and bindings. A preset names everything; each name can be set alone.
	Topology Topology `section:"Topology" prefix:"SIDECAR_" scope:"subscription"`

	// What of a message becomes HTTP headers. No message header can set `Host`, `Content-Length`, `Authorization`,
	// `Cookie` or any other header that means something to an HTTP server or proxy.
	Request Request `section:"Request headers" prefix:"SIDECAR_" scope:"subscription"`

	// The sidecar's own two listeners. Ports may be `:0`: the addresses in use are logged as `listening`.
	Listen Listen `section:"Listeners" prefix:"SIDECAR_"`

	// A third listener, off by default: the app POSTs messages to it, and the sidecar publishes them.
	Publish Publish `section:"Publishing" prefix:"SIDECAR_"`

	// A table in the app's PostgreSQL database, off by default: the app inserts messages in its own transactions, and the
	// sidecar publishes those that were committed. The defaults of PostgreSQL's client (`PGHOST`, `PGSSLMODE`, …) count
	// for everything that the connection string leaves out.
	Outbox Outbox `section:"Outbox" prefix:"SIDECAR_"`

	// Stopping and logging.
	Process Process `section:"Process" prefix:"SIDECAR_"`

	// The standard OpenTelemetry variables, with their standard meaning (so durations are milliseconds here). Tracing is
	// off, and costs nothing, until an endpoint is set. Wrong values are errors when tracing is on and warnings when it
	// is off, because these variables are often set for a whole namespace. The batching and span limits (`OTEL_BSP_*`,
	// `OTEL_SPAN_*`) are read by the OpenTelemetry SDK itself. Each `OTEL_EXPORTER_OTLP_…` can be set for traces alone,
	// `OTEL_EXPORTER_OTLP_TRACES_…`, which counts then.
	OTel OTel `section:"Tracing" prefix:"OTEL_"`

	// LongPrefetch is the prefetch while attempts take long; 0: Window.Prefetch always.
	LongPrefetch int

	// Plan is the content of SIDECAR_PLAN_FILE.
	Plan []byte

	// Tracing is what the OTel variables come to; nil when tracing is off.
	Tracing *Tracing

	// Subscription is the name of the subscription that this is the configuration of; "" when there is one without a name.
	Subscription string

	// Subscriptions are the configurations of the subscriptions that have a name, in the order of their names in
	// SIDECAR_SUBSCRIPTIONS; empty when that is not set.
	Subscriptions []*Config

	warnings []string
	settings []Setting
}

// Warnings lists what is allowed but should be loud: one line each, naming the variable.
func (c *Config) Warnings() []string { return append([]string(nil), c.warnings...) }

// Subscribed returns the configuration of each queue that is consumed; none when SIDECAR_CONSUME is off.
func (c *Config) Subscribed() []*Config {
	switch {
	case c.Service.Consume == ConsumeOff:
		return nil
	case len(c.Subscriptions) > 0:
		return c.Subscriptions
	}
	return []*Config{c}
}

// Process is stopping and logging.
type Process struct {
	// Time that messages in flight get when the sidecar is asked to stop. What is not done by then goes back to the queue,
	// uncounted. In Kubernetes it must fit into `terminationGracePeriodSeconds` together with the app's own stop.
	ShutdownGrace time.Duration `env:"SHUTDOWN_GRACE" envDefault:"25s" range:"0s..1h"`

	// Least severe level that is logged. Messages that were taken at the first attempt are `debug`.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info" oneof:"debug|info|warn|error"`

	// `json`: one object per line. `text`: for people. `auto`: `text` where standard output is a terminal, `json` elsewhere.
	LogFormat string `env:"LOG_FORMAT" envDefault:"auto" oneof:"auto|json|text"`
}
