package app

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"sidecar/internal/broker"
	"sidecar/internal/config"
	"sidecar/internal/topology"
)

// PlanFormats are the formats of RenderPlan.
var PlanFormats = []string{"text", "mermaid", "definitions", "permissions", "json"}

// RenderPlan returns the configured topology, of all subscriptions, in one of PlanFormats. The permissions are for the
// configured mode.
func RenderPlan(cfg *config.Config, format string) (string, error) {
	declared, err := declaredPlan(cfg) // of the first one
	if err != nil {
		return "", err
	}
	exchanges, subscribed := published(cfg, declared), cfg.Subscribed()
	if len(subscribed) == 0 {
		return renderSent(cfg, format, exchanges)
	}
	var plans []*topology.Plan
	var modes []topology.Mode
	var texts []string
	for _, of := range subscribed {
		p, err := newPlan(of)
		if err != nil {
			return "", err
		}
		plans, modes = append(plans, p), append(modes, modeOf(of))
		text := p.Text()
		if of.Subscription != "" {
			text = "subscription " + of.Subscription + ": " + text
		}
		texts = append(texts, text)
	}
	switch {
	case format == "permissions":
		return topology.Permit(plans, modes, exchanges...).Text(vhost(cfg)), nil
	case format == "text":
		return strings.Join(texts, "\n"), nil
	case format == "mermaid":
		return topology.Mermaid(plans...), nil
	case format == "definitions":
		b, err := topology.Merge(plans...).Definitions(vhost(cfg))
		return string(b), err
	case format == "json" && len(plans) > 1:
		return "", fmt.Errorf("%w: a plan in JSON is for one subscription, for SIDECAR_SUB_…_PLAN_FILE: choose it with "+
			"--subscription", ErrConfig)
	case format == "json":
		b, err := declared.JSON() // the same in every mode
		return string(b), err
	}
	return "", fmt.Errorf("format %q is not one of %s", format, strings.Join(PlanFormats, ", "))
}

// renderSent is RenderPlan for a sidecar that only sends.
func renderSent(cfg *config.Config, format string, exchanges []string) (string, error) {
	switch format {
	case "permissions":
		return (&topology.Plan{}).Permissions(topology.ModeNone, exchanges...).Text(vhost(cfg)), nil
	case "text":
		lines := []string{"SIDECAR_CONSUME=off: nothing is declared and nothing is consumed; what the app sends is " +
			"published to"}
		for _, exchange := range slices.Compact(slices.Sorted(slices.Values(exchanges))) {
			lines = append(lines, "  exchange "+cmp.Or(exchange, topology.DefaultExchange))
		}
		return strings.Join(lines, "\n") + "\n", nil
	}
	return "", fmt.Errorf("format %q is not one of text, permissions: SIDECAR_CONSUME=off declares nothing", format)
}

// vhost returns the virtual host of the first URL.
func vhost(cfg *config.Config) string {
	_, name, _ := broker.NewDialer(brokerOptions(cfg, "", Build{})).Where()
	return cmp.Or(name, "/")
}
