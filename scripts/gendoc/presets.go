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
		topology.PresetDeadLetter, topology.PresetNative,
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
	"hs", "{subscription}", "1m30s", "{tier}", "90s", "{seconds}",
)

// planned are plans of one preset: own with the names that nothing is set for, of with those made from the names of the
// exchange and the queue, plain and tiers with those made from the retry queue's, with the usual delays and with one.
type planned struct {
	own, of      topology.Options
	plain, tiers *topology.Plan
	bindingKey   string
}

func newPlanned(name, subscription string) (p planned, err error) {
	o := topology.Options{Preset: name, Service: "hp-hr", Subscription: subscription}
	p.bindingKey = bindingKey(o)
	p.own = topology.Fill(o)
	o.Exchange, o.Queue = "hx", "hq"
	p.of = topology.Fill(o)
	o.Bindings = []topology.Binding{{Exchange: "hx", Key: "k"}}
	delays := []time.Duration{90 * time.Second, 90 * time.Minute}
	if p.own.RetryQueue != "" { // else retries wait in the service's queue, from one delay to another
		o.RetryQueue, delays = "hw", delays[:1]
	}
	if p.plain, err = topology.Build(o); err != nil {
		return p, err
	}
	o.RetryDelays = delays
	p.tiers, err = topology.Build(o)
	return p, err
}

// names are those with placeholders, by their keys.
func (p *planned) names() [][2]string {
	names := [][2]string{
		{"queue", p.own.Queue}, {"bindingKey", p.bindingKey}, {"retryExchange", p.of.RetryExchange},
		{"retryQueue", p.of.RetryQueue}, {"tierQueue", p.tiers.Waits[0].Queue}, {"dlx", p.of.DLX}, {"dlq", p.of.DLQ},
	}
	for i := range names {
		names[i][1] = placeholders.Replace(names[i][1])
	}
	return slices.DeleteFunc(names, func(n [2]string) bool { return n[1] == "" })
}

func preset(b *strings.Builder, name string) error {
	p, err := newPlanned(name, "")
	if err != nil {
		return err
	}
	subscribed, err := newPlanned(name, "hs")
	if err != nil {
		return err
	}
	own, plain, tiers := p.own, p.plain, p.tiers
	fmt.Fprintf(b, "%s:\n  exchange: %q\n  exchangeType: %s\n  queueType: %s\n", name, placeholders.Replace(own.Exchange),
		own.ExchangeType, own.QueueType)
	for _, n := range p.names() {
		fmt.Fprintf(b, "  %s: %q\n", n[0], n[1])
	}
	b.WriteString("  subscribed:\n") // what differs where the queue has the name of a subscription
	for _, n := range subscribed.names() {
		if !slices.Contains(p.names(), n) {
			fmt.Fprintf(b, "    %s: %q\n", n[0], n[1])
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
func bindingKey(o topology.Options) string {
	o.Queue, o.Exchange, o.ExchangeType = "hq", "hx", "topic"
	p, err := topology.Build(o)
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
