package config

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// maxName is the longest name AMQP can carry, in bytes. The client library answers a longer one by closing the whole
// connection, so no name may get as far as that.
const maxName = 255

// standard are the exchanges every vhost has.
var standard = []string{"amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match"}

// checkShortString holds for everything AMQP sends as a short string: names and routing keys.
func checkShortString(v string) error {
	switch {
	case len(v) > maxName:
		return errors.New("is longer than 255 bytes")
	case !utf8.ValidString(v):
		return errors.New("is not UTF-8")
	case strings.ContainsFunc(v, unicode.IsControl):
		return errors.New("holds a control character")
	}
	return nil
}

// checkName checks the name of something the sidecar declares. Only the main exchange may be one of the broker's own,
// and only where the preset does not name others after it: {exchange}.retry would be reserved too.
func (l *loader) checkName(name, value string) {
	if value == "" {
		return
	}
	if err := checkShortString(value); err != nil {
		l.reject(name, "%v", err)
		return
	}
	if strings.TrimSpace(value) != value {
		l.reject(name, "starts or ends with a space")
		return
	}
	named := l.cfg.Topology.Preset == PresetTopicTiers || l.cfg.Topology.Preset == PresetDeadLetter
	if name == "SIDECAR_EXCHANGE" && slices.Contains(standard, value) && !named {
		return
	}
	if strings.HasPrefix(value, "amq.") || (name == "SIDECAR_PREFIX" && value == "amq") {
		l.reject(name, "names that start with amq. are reserved by the broker")
	}
}

// rest is the part of a service name behind its first hyphen, all of it without one.
func rest(service string) string {
	if _, after, found := strings.Cut(service, "-"); found {
		return after
	}
	return service
}

// checkDerivedNames bounds what the preset makes of service, prefix, queue and exchange.
func (l *loader) checkDerivedNames() {
	if !l.ok("SIDECAR_SERVICE", "SIDECAR_PREFIX", "SIDECAR_QUEUE", "SIDECAR_EXCHANGE", "SIDECAR_RETRY_DELAYS") {
		return
	}
	t := l.cfg.Topology
	for _, name := range derivedNames(l.cfg) {
		if len(name) <= maxName {
			continue
		}
		from := "SIDECAR_SERVICE"
		for variable, part := range map[string]string{"SIDECAR_QUEUE": t.Queue, "SIDECAR_EXCHANGE": t.Exchange} {
			if part != "" && strings.Contains(name, part) {
				from = variable
			}
		}
		l.reject(from, "a name made from it has %d bytes and may have %d: %.30s…", len(name), maxName, name)
		return
	}
}

// derivedNames lists the longest name of each kind the preset makes. Names that are set one by one are checked alone.
func derivedNames(c *Config) []string {
	t, service := c.Topology, c.Service.Name
	prefix := cmp.Or(t.Prefix, c.Service.Prefix())
	switch tier := longestTier(c.Retry.Delays); t.Preset {
	case PresetFanout:
		return []string{prefix + ".retry-exchange." + service, prefix + ".retry-queue." + service + tier}
	case PresetTopicTiers:
		return []string{prefix + "." + rest(service) + ".retry" + cmp.Or(tier, shortTier), cmp.Or(t.Exchange, prefix+".events") + ".retry"}
	case PresetPerQueue:
		queue := cmp.Or(t.Queue, "q."+service)
		return []string{queue + ".retry", "retry." + queue}
	case PresetDelayLadder:
		return []string{cmp.Or(t.Queue, prefix+"."+rest(service)) + ".delay" + cmp.Or(tier, shortTier)}
	default:
		return []string{t.Queue + ".retry", cmp.Or(t.Exchange, prefix) + ".dlx"}
	}
}

// shortTier is as long as the suffixes that the presets' own delays make.
const shortTier = ".15s"

// longestTier is the longest suffix that configured delays make, "" without any.
func longestTier(delays Delays) string {
	longest := ""
	for _, d := range delays {
		if tier := "." + tierName(d); len(tier) > len(longest) {
			longest = tier
		}
	}
	return longest
}

// tierName writes a delay as the topology does in names: 30s, 5m, 1h.
func tierName(d time.Duration) string {
	s := d.String()
	if cut, found := strings.CutSuffix(s, "m0s"); found {
		s = cut + "m"
	}
	if cut, found := strings.CutSuffix(s, "h0m"); found {
		s = cut + "h"
	}
	return s
}
