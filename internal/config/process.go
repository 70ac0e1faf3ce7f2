package config

import "time"

// Process is stopping and logging.
type Process struct {
	// Time that messages in flight get when the sidecar is told to stop. What is not done by then goes back to the queue,
	// uncounted. In Kubernetes it must fit into `terminationGracePeriodSeconds` together with the app's own stop.
	ShutdownGrace time.Duration `env:"SHUTDOWN_GRACE" envDefault:"25s" range:"0s..1h"`

	// Least severe level that is logged. Messages that were taken at the first attempt are `debug`.
	LogLevel string `env:"LOG_LEVEL" envDefault:"info" oneof:"debug|info|warn|error"`

	// `json`: one object per line. `text`: for people.
	LogFormat string `env:"LOG_FORMAT" envDefault:"json" oneof:"json|text"`
}
