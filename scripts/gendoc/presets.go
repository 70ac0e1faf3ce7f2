package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"sidecar/internal/topology"
)

// presets writes the values of each preset for the charts, as a template: the plan that the sidecar makes of made-up
// names, in which those names are placeholders again.
func presets() (string, error) {
	var b strings.Builder
	b.WriteString("{{- /* Generated from what `sidecar plan` makes by \"go generate ./...\". Do not edit. The placeholders are " +
		"filled in\n" +
		"amqp-sidecar-lib.plan. */ -}}\n{{- define \"amqp-sidecar-lib.presets\" -}}\n")
	for _, name := range []string{
		topology.PresetFanout, topology.PresetTopicTiers, topology.PresetPerQueue, topology.PresetDelayLadder,
		topology.PresetDeadLetter,
	} {
		if err := preset(&b, name); err != nil {
			return "", fmt.Errorf("preset %s: %w", name, err)
		}
	}
	b.WriteString("{{- end -}}\n")
	return b.String(), nil
}

// placeholders replaces each made-up name by its placeholder. The service's name is found before its two halves.
var placeholders = strings.NewReplacer(
	"hp-hr", "{service}", "hp", "{prefix}", "hr", "{rest}", "hx", "{exchange}", "hq", "{queue}", "hw", "{retry-queue}",
	"1m30s", "{tier}", "90s", "{seconds}",
)

func preset(b *strings.Builder, name string) error {
	o := topology.Options{Preset: name, Service: "hp-hr"}
	own := topology.Fill(o)
	o.Exchange, o.Queue = "hx", "hq"
	of := topology.Fill(o) // with names made from those
	o.RetryQueue, o.Bindings = "hw", []topology.Binding{{Exchange: "hx", Key: "k"}}
	plain, err := topology.Build(o)
	if err != nil {
		return err
	}
	o.RetryDelays = []time.Duration{90 * time.Second}
	tiers, err := topology.Build(o)
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "%s:\n  exchange: %q\n  exchangeType: %s\n  queueType: %s\n", name, placeholders.Replace(own.Exchange),
		own.ExchangeType, own.QueueType)
	for _, n := range [][2]string{
		{"queue", own.Queue}, {"bindingKey", bindingKey(name)}, {"retryExchange", of.RetryExchange},
		{"retryQueue", of.RetryQueue}, {"tierQueue", tiers.Waits[0].Queue}, {"dlx", of.DLX}, {"dlq", of.DLQ},
	} {
		if n[1] != "" {
			fmt.Fprintf(b, "  %s: %q\n", n[0], placeholders.Replace(n[1]))
		}
	}
	delays := "[]"
	if own.RetryDelay == 0 {
		var list []string
		for _, w := range plain.Waits {
			list = append(list, topology.TierLabel(w.Delay))
		}
		delays = "[" + strings.Join(list, ", ") + "]"
	} else {
		fmt.Fprintf(b, "  delay: %s\n", topology.TierLabel(own.RetryDelay))
	}
	fmt.Fprintf(b, "  delays: %s\n  maxRetries: %d\n  rejects: %v\n", delays, *own.MaxRetries,
		slices.ContainsFunc(tiers.Queues, func(q topology.Queue) bool { return q.Name == "hw" }))
	return nil
}

// bindingKey is the key by which the preset binds the queue to a topic exchange; empty where bindings must be given.
func bindingKey(name string) string {
	p, err := topology.Build(topology.Options{Preset: name, Service: "hp-hr", Queue: "hq", Exchange: "hx",
		ExchangeType: "topic"})
	if err != nil {
		return ""
	}
	for _, b := range p.Bindings {
		if b.Exchange == "hx" && b.Queue == "hq" {
			return b.Key
		}
	}
	return ""
}
