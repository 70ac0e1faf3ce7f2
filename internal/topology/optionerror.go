package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// OptionError is something wrong with options, and the variables it comes from.
type OptionError struct {
	// Variables are those of the configuration that the judgement rests on, set or not. The first one is to blame.
	Variables []string

	// Reason does not repeat the value of the variable to blame.
	Reason string
}

const (
	maxRetriesLimit = 1_000_000
	maxTTL          = (1<<32 - 1) * time.Millisecond // what a broker's timer takes
)

var exchangeTypes = []string{"fanout", "direct", "topic", "headers"}

// ValidateOptions lists what keeps Build from making a plan of values each of which the configuration accepts alone:
// what only options can have wrong, and what Plan.Validate says of the plan that they make. A mistake that has a
// variable in common with an earlier one is left out: it may be a consequence.
func ValidateOptions(given Options) []OptionError {
	_, mistakes := plan(given)
	return mistakes
}

// plan returns the plan of options, and what is wrong with them.
func plan(given Options) (*Plan, []OptionError) {
	given.Preset = cmp.Or(given.Preset, PresetFanout)
	c := optionValidator{given: given, o: Fill(given), b: presets()[given.Preset]}
	if c.b == nil {
		c.refuse(true, parts{"{topology}"}, "not a topology: use one of %s",
			presetsWith(func(*preset) bool { return true }))
		return nil, c.mistakes
	}
	c.checkOptions()
	c.checkRetries()
	c.checkQueueArguments()
	c.checkBindings()
	p := expand(&given, c.o)
	for _, found := range p.problems(nil) {
		c.refusePlan(p, found)
	}
	return p, c.mistakes
}

// parts are parts of a topology, by their words in settings.
type parts []string

// optionValidator collects while it goes: no check ends the others.
type optionValidator struct {
	given, o Options // as set, and filled
	b        *preset
	mistakes []OptionError
}

func (c *optionValidator) refuse(wrong bool, of parts, format string, args ...any) {
	if wrong {
		reason := (&Plan{}).Say(fmt.Sprintf(format, args...))
		c.mistakes = append(c.mistakes, OptionError{variables(of...), reason})
	}
}

// refusePlan reports what is wrong with the plan. Of two places one that is set is to blame.
func (c *optionValidator) refusePlan(p *Plan, found problem) {
	var all []string
	blamedIsSet := false
	for _, path := range found.paths {
		part := p.setBy(path)
		if c.isSet(part) {
			all, blamedIsSet = append(c.origins(part), all...), true
		} else {
			all = append(all, c.origins(part)...)
		}
	}
	all = unique(all)
	known := slices.ContainsFunc(c.mistakes, func(m OptionError) bool {
		return slices.ContainsFunc(m.Variables, func(v string) bool { return slices.Contains(all, v) })
	})
	if known {
		return
	}
	if others := strings.Join(all[1:], " or "); others != "" && !blamedIsSet {
		found.text += "; or set " + others
	}
	c.mistakes = append(c.mistakes, OptionError{all, found.text})
}

func unique(all []string) (once []string) {
	for _, one := range all {
		if !slices.Contains(once, one) {
			once = append(once, one)
		}
	}
	return once
}

func (c *optionValidator) isSet(part string) bool {
	return part == "{bindings}" && len(c.given.Bindings) > 0 ||
		slices.ContainsFunc(c.given.settable(c.b), func(s settable) bool { return s.word == part && *s.value != "" })
}

// origins are the variables that a part of the plan comes from: its own if it is set, else those in the template of its
// name, the one with the longest value first.
func (c *optionValidator) origins(part string) []string {
	var all []string
	for _, s := range c.given.settable(c.b) {
		if s.word != part || *s.value != "" {
			continue
		}
		words := placeholder.FindAllString(c.o.scope().Replace(s.template), -1)
		slices.SortStableFunc(words, func(a, b string) int { return len(c.o.nameFrom(b)) - len(c.o.nameFrom(a)) })
		for _, word := range words {
			all = append(all, c.origins(word)...)
		}
	}
	if part == "{bindings}" && len(c.given.Bindings) == 0 { // the keys of the preset are made from the service's name
		all = variables("{service}")
	}
	if part == "{retry-delays}" && c.given.RetryDelays == nil {
		all = variables("{retry-delay}")
	}
	return append(all, variables(part)...)
}

func presetsWith(has func(*preset) bool) string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(presets())), func(name string) bool {
		return !has(presets()[name])
	}), ", ")
}

func (c *optionValidator) checkOptions() {
	o, b := &c.given, c.b
	_, rest := halves(o.Service)
	c.refuse(o.Queue == "" && strings.Contains(b.Names["queue"], "{rest}") && rest == "" && o.Subscription == "",
		parts{"{service}", "{queue}"}, "%s names the queue after what follows the first hyphen, and nothing does", o.Preset)
	c.refuse(b.delaysItself() && (o.RetryExchange != "" || o.RetryQueue != ""),
		parts{"{topology}", "{retry-exchange}", "{retry-queue}"},
		"leave {retry-exchange} and {retry-queue} out: native has neither, and retries wait in the service's queue")
	c.refuse(c.o.Queue == "", parts{"{queue}"}, "required for {topology}=%s and not set", o.Preset)
	c.refuse(len(o.Bindings) == 0 && b.Plan.Bindings[0].Key == "", parts{"{bindings}"},
		"required for {topology}=%s and not set", o.Preset)
	c.refuse(len(o.Bindings) == 0 && b.Plan.Bindings[0].Key != "" && o.ExchangeType == "direct",
		parts{"{exchange-type}", "{bindings}"}, "needs {bindings}: a direct exchange routes by key")

	const only = "is for {topology}=%s only, and the topology is %s"
	discarding := presetsWith(func(b *preset) bool { return b.MayDiscard })
	c.refuse(o.MessageTTL != 0 && !b.MayDiscard, parts{"{message-ttl}"}, only, discarding, o.Preset)
	c.refuse(o.NoDeadLetter && !b.MayDiscard, parts{"{dead-letter}"}, only, discarding, o.Preset)
	c.refuse(o.NoDeadLetter && (o.DLX != "" || o.DLQ != ""), parts{"{dead-letter}", "{dlx}", "{dlq}"},
		"{dlx} and {dlq} name what there is not")
}

func (c *optionValidator) checkRetries() {
	o := &c.given
	none := o.RetryDelays != nil && len(o.RetryDelays) == 0
	c.refuse(none && !c.b.MayNotRetry, parts{"{retry-delays}"}, "none is for {topology}=%s only; with {max-retries}=0 "+
		"the first failure parks", presetsWith(func(b *preset) bool { return b.MayNotRetry }))
	c.refuse(o.RetryDelay != 0 && len(c.b.RetryDelays) > 0, parts{"{retry-delay}"},
		"%s has one delay per retry: use {retry-delays}", o.Preset)
	c.refuse(c.b.delaysItself() && o.RetryDelays != nil && len(o.RetryDelays) != 2, parts{"{retry-delays}", "{topology}"},
		"two for %s, the shortest and the longest: the broker waits the first once for each failure, at most the second",
		o.Preset)
}

func (c *optionValidator) checkQueueArguments() {
	args := c.given.QueueArguments
	own := []string{ArgDLX, ArgDLKey, ArgStrategy, ArgType}
	if c.b.delaysItself() {
		own = append(own, ArgRetryType, ArgRetryMin, ArgRetryMax, ArgDeliveryLimit)
	}
	for _, name := range own {
		_, set := args[name]
		c.refuse(set, parts{"{queue-arguments}"}, "%s is set by the topology", name)
	}
	c.o.QueueArguments = maps.Clone(args) // what is refused here has no consequences
	maps.DeleteFunc(c.o.QueueArguments, func(name string, _ any) bool { return slices.Contains(own, name) })
	overflow, set := args[ArgOverflow]
	c.refuse(set && overflow != overflowReject, parts{"{queue-arguments}"}, "%s=%v: only %s loses nothing", ArgOverflow,
		overflow, overflowReject)
	_, expires := args[ArgTTL]
	c.refuse(expires && c.o.MessageTTL != 0, parts{"{queue-arguments}", "{message-ttl}"}, "%s is set by {message-ttl}",
		ArgTTL)
}

// checkBindings refuses what the service's queue must not be bound to.
func (c *optionValidator) checkBindings() {
	o := &c.o
	for _, bound := range o.Bindings {
		carries := bound.Exchange != "" && bound.Exchange != o.Exchange &&
			(bound.Exchange == o.RetryExchange || bound.Exchange == o.DLX)
		c.refuse(carries, parts{"{bindings}", "{retry-exchange}", "{dlx}"},
			"exchange %s carries retries or parked messages, which the service would receive", brief(bound.Exchange))
	}
}
