package main

import (
	"fmt"
	"strings"

	"sidecar/internal/topology"
)

// presets writes the name of each preset's queue for the charts, as a template: the name that the sidecar makes of
// made-up names, in which those are placeholders again.
func presets() string {
	var b strings.Builder
	b.WriteString("{{- /* Generated from what the sidecar makes by \"go generate ./...\". Do not edit.\n" +
		"The placeholders are filled in amqp-sidecar-lib.queue. */ -}}\n{{- define \"amqp-sidecar-lib.presets\" -}}\n")
	for _, name := range topology.Presets {
		fmt.Fprintf(&b, "%s: {queue: %q, subscribed: %q}\n", name, queueOf(name, ""), queueOf(name, "hs"))
	}
	b.WriteString("{{- end -}}\n")
	return b.String()
}

// placeholders replaces each made-up name by its placeholder. The service's name is found before its two halves.
var placeholders = strings.NewReplacer(
	"hp-hr", "{service}", "hp", "{prefix}", "hr", "{rest}", "hs", "{subscription}",
)

func queueOf(preset, subscription string) string {
	o := topology.Fill(topology.Options{Preset: preset, Service: "hp-hr", Subscription: subscription})
	return placeholders.Replace(o.Queue)
}
