package config

import (
	"regexp"
	"strings"
)

// DefaultPrefix is the prefix of a service whose name has no hyphen.
const DefaultPrefix = "default"

// The values of SIDECAR_CONSUME.
const (
	ConsumeOn  = "on"
	ConsumeOff = "off"
)

// Service is who consumes, or only sends.
type Service struct {
	// Name of the service, e.g. `wms-cincout`. The part before its first hyphen is the prefix (`wms`) that all services
	// of one family share; a name without a hyphen gets the prefix `default`. `{service}` in names is the whole name.
	Name string `env:"SERVICE,required" allowed:"letters, digits, '.', '_' and '-', not starting with '-' or 'amq.'"`

	// `off` is for a service that only sends: no queue is declared, watched or consumed, the app is neither looked at nor
	// POSTed to, and the sidecar is ready when what it publishes can leave. Needs `SIDECAR_PUBLISH_ADDR` or
	// `SIDECAR_OUTBOX_DSN`.
	Consume string `env:"CONSUME" envDefault:"on" oneof:"on|off"`
}

// Prefix returns the part before the first hyphen, DefaultPrefix without one.
func (s Service) Prefix() string {
	if prefix, _, found := strings.Cut(s.Name, "-"); found {
		return prefix
	}
	return DefaultPrefix
}

var serviceName = regexp.MustCompile(`^[A-Za-z0-9._][A-Za-z0-9._-]*$`)

func (l *loader) checkService() {
	const name = "SIDECAR_SERVICE"
	s := l.cfg.Service.Name
	switch {
	case !l.ok(name):
		return
	case !serviceName.MatchString(s):
		l.reject(name, "not a service name")
	case strings.HasPrefix(s, "amq."):
		l.reject(name, "names that start with amq. are reserved by the broker")
	}
}

// checkPurpose refuses a sidecar that would do nothing at all.
func (l *loader) checkPurpose() {
	const name, addr, dsn = "SIDECAR_CONSUME", "SIDECAR_PUBLISH_ADDR", "SIDECAR_OUTBOX_DSN"
	if l.ok(name, addr, dsn) && l.cfg.Service.Consume == ConsumeOff && !l.isSet(addr) && !l.isSet(dsn) {
		l.reject(name, "leaves nothing to do: set %s or %s", addr, dsn)
	}
}
