package app

import (
	"strconv"
	"strings"

	"sidecar/internal/config"
	"sidecar/internal/topology"
)

// PresetValues are the values the topology preset has given to the variables that were not set, by variable.
func PresetValues(cfg *config.Config) (map[string]string, error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, err
	}
	v := map[string]string{
		"SIDECAR_QUEUE_TYPE": "classic", "SIDECAR_QUEUE": p.Queue, "SIDECAR_DLQ": p.Park.Queue,
		"SIDECAR_MAX_RETRIES": strconv.Itoa(p.MaxRetries), "SIDECAR_RETRY_DELAYS": "none",
	}
	if p.Quorum {
		v["SIDECAR_QUEUE_TYPE"] = "quorum"
	}
	var delays []string
	for _, w := range p.Waits {
		delays = append(delays, w.Delay.String())
		v["SIDECAR_RETRY_EXCHANGE"], v["SIDECAR_RETRY_QUEUE"] = w.Exchange, w.Queue
	}
	if p.Tiered {
		v["SIDECAR_RETRY_DELAYS"] = strings.Join(delays, ",")
	} else {
		v["SIDECAR_RETRY_DELAY"] = strings.Join(delays, ",")
	}
	v["SIDECAR_BINDINGS"] = mainBindings(p, v)
	return v, nil
}

// mainBindings are the bindings of the service's own queue; the first one's exchange is the main exchange.
func mainBindings(p *topology.Plan, v map[string]string) string {
	var list []string
	for _, b := range p.Bindings {
		if b.Queue == p.Queue {
			list = append(list, b.Exchange+":"+b.Key)
		}
	}
	if e := p.Exchanges[0]; e.Type != "" {
		v["SIDECAR_EXCHANGE"], v["SIDECAR_EXCHANGE_TYPE"] = e.Name, e.Type
	}
	return strings.Join(list, ",")
}
