package config

import (
	"regexp"
	"strings"
)

// DefaultPrefix is the prefix of a service whose name has no hyphen.
const DefaultPrefix = "default"

// Service is who consumes.
type Service struct {
	// Name of the service, e.g. `wms-cincout`. The part before its first hyphen is the prefix (`wms`) that all services
	// of one family share; a name without a hyphen gets the prefix `default`. `{service}` in names is the whole name.
	Name string `env:"SERVICE,required" allowed:"letters, digits, '.', '_' and '-', not starting with '-' or 'amq.'"`
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
