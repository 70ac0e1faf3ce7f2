package app

import (
	"cmp"
	"strings"

	"sidecar/internal/config"
	"sidecar/internal/topology"
)

// PresetValues are the values the topology preset has given to the variables that were not set, by variable. What the
// topology does not have is empty. The warnings are the plan's, a sentence each.
func PresetValues(cfg *config.Config) (values map[string]string, warnings []string, err error) {
	p, err := newPlan(cfg)
	if err != nil {
		return nil, nil, err
	}
	o := topology.Fill(planOptions(cfg))
	v := o.Values()
	v["SIDECAR_RETRY_DELAYS"] = cmp.Or(v["SIDECAR_RETRY_DELAYS"], "none")
	var bindings []string
	for _, b := range p.Bindings {
		if b.Queue == p.Queue {
			bindings = append(bindings, b.Exchange+":"+b.Key)
		}
	}
	v["SIDECAR_BINDINGS"] = strings.Join(bindings, ",")
	return v, planWarnings(cfg, p), nil
}
