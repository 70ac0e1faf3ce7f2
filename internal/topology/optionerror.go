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

// ValidateOptions lists what keeps Build from making a plan of values each of which the configuration accepts alone. Of
// two mistakes that have a variable in common, the later one may be a consequence of the earlier one.
func ValidateOptions(given Options) []OptionError {
	given.Preset = cmp.Or(given.Preset, PresetFanout)
	c := optionValidator{given: given, o: Fill(given), b: blueprints[given.Preset], names: map[string]name{}}
	if c.b == nil {
		c.refuse(true, on{"SIDECAR_TOPOLOGY"}, "not a topology: use one of %s",
			presetsWith(func(*blueprint) bool { return true }))
		return c.mistakes
	}
	c.collectNames()
	c.checkOptions()
	c.checkRetries()
	c.checkQueueArguments()
	c.checkNames()
	c.checkClashes("queues", c.queues())
	c.checkClashes("exchanges", c.exchanges())
	c.checkBindings()
	return c.mistakes
}

const (
	maxRetriesLimit = 1_000_000
	maxTTL          = (1<<32 - 1) * time.Millisecond // what a broker's timer takes
)

var exchangeTypes = []string{"fanout", "direct", "topic", "headers"}

type on []string

// optionValidator collects while it goes: no check ends the others.
type optionValidator struct {
	given, o Options // as set, and filled
	b        *blueprint
	names    map[string]name // by the variables that set them
	mistakes []OptionError
}

func (c *optionValidator) refuse(wrong bool, variables on, format string, args ...any) {
	if wrong {
		c.mistakes = append(c.mistakes, OptionError{variables, fmt.Sprintf(format, args...)})
	}
}

func presetsWith(has func(*blueprint) bool) string {
	return strings.Join(slices.DeleteFunc(slices.Sorted(maps.Keys(blueprints)), func(name string) bool {
		return !has(blueprints[name])
	}), ", ")
}

func (c *optionValidator) checkOptions() {
	o, b := &c.given, c.b
	_, rest := halves(o.Service)
	c.refuse(o.Queue == "" && strings.Contains(b.queue, "{rest}") && rest == "" && o.Subscription == "",
		on{"SIDECAR_SERVICE", "SIDECAR_QUEUE"},
		"%s names the queue after what follows the first hyphen, and nothing does", o.Preset)

	c.refuse(b.wait.inQueue && o.QueueType == TypeClassic, on{"SIDECAR_QUEUE_TYPE", "SIDECAR_TOPOLOGY"},
		"only a quorum queue delays messages itself")
	c.refuse(b.wait.inQueue && (o.RetryExchange != "" || o.RetryQueue != ""),
		on{"SIDECAR_TOPOLOGY", "SIDECAR_RETRY_EXCHANGE", "SIDECAR_RETRY_QUEUE"},
		"leave SIDECAR_RETRY_EXCHANGE and SIDECAR_RETRY_QUEUE out: native has neither, and retries wait in the service's "+
			"queue")
	c.refuse(c.o.Queue == "", on{"SIDECAR_QUEUE"}, "required for SIDECAR_TOPOLOGY=%s and not set", o.Preset)
	c.refuse(len(o.Bindings) == 0 && b.bindingKey == "", on{"SIDECAR_BINDINGS"},
		"required for SIDECAR_TOPOLOGY=%s and not set", o.Preset)
	c.refuse(len(o.Bindings) == 0 && b.bindingKey != "" && o.ExchangeType == "direct",
		on{"SIDECAR_EXCHANGE_TYPE", "SIDECAR_BINDINGS"}, "needs SIDECAR_BINDINGS: a direct exchange routes by key")

	const only = "is for SIDECAR_TOPOLOGY=%s only, and the topology is %s"
	discarding := presetsWith(func(b *blueprint) bool { return b.mayDiscard })
	c.refuse(o.MessageTTL != 0 && !b.mayDiscard, on{"SIDECAR_MESSAGE_TTL"}, only, discarding, o.Preset)
	c.refuse(o.NoDeadLetter && !b.mayDiscard, on{"SIDECAR_DEAD_LETTER"}, only, discarding, o.Preset)
	c.refuse(o.NoDeadLetter && (o.DLX != "" || o.DLQ != ""), on{"SIDECAR_DEAD_LETTER", "SIDECAR_DLX", "SIDECAR_DLQ"},
		"SIDECAR_DLX and SIDECAR_DLQ name what there is not")
}

func (c *optionValidator) checkRetries() {
	o := &c.given
	const delays = "SIDECAR_RETRY_DELAYS"
	none := o.RetryDelays != nil && len(o.RetryDelays) == 0
	c.refuse(none && !c.b.mayNotRetry, on{delays}, "none is for SIDECAR_TOPOLOGY=%s only; with SIDECAR_MAX_RETRIES=0 "+
		"the first failure parks", presetsWith(func(b *blueprint) bool { return b.mayNotRetry }))
	c.refuse(o.RetryDelay != 0 && len(c.b.wait.delays) > 0, on{"SIDECAR_RETRY_DELAY"},
		"%s has one delay per retry: use %s", o.Preset, delays)
	c.refuse(o.MaxRetries != nil && *o.MaxRetries > 0 && none, on{"SIDECAR_MAX_RETRIES", delays},
		"with %s=none there is nowhere to wait, only 0 is possible", delays)
	c.refuse(c.b.wait.inQueue && o.RetryDelays != nil && len(o.RetryDelays) != 2, on{delays, "SIDECAR_TOPOLOGY"},
		"two for %s, the shortest and the longest: the broker waits the first once for each failure, at most the second",
		o.Preset)
}

func (c *optionValidator) checkQueueArguments() {
	args := c.given.QueueArguments
	variable := on{"SIDECAR_QUEUE_ARGUMENTS"}
	own := []string{ArgDLX, ArgDLKey, ArgStrategy, ArgType}
	if c.b.wait.inQueue {
		own = append(own, ArgRetryType, ArgRetryMin, ArgRetryMax, ArgDeliveryLimit)
	}
	for _, name := range own {
		_, set := args[name]
		c.refuse(set, variable, "%s is set by the topology", name)
	}
	overflow, set := args[ArgOverflow]
	c.refuse(set && overflow != overflowReject, variable, "%s=%v: only %s loses nothing", ArgOverflow, overflow,
		overflowReject)
	_, expires := args[ArgTTL]
	c.refuse(expires && c.o.MessageTTL != 0, append(variable, "SIDECAR_MESSAGE_TTL"), "%s is set by SIDECAR_MESSAGE_TTL",
		ArgTTL)
	alone := Plan{
		Quorum: c.o.QueueType == TypeQuorum, Attempt: c.o.Attempt, SingleActive: c.o.SingleActive,
		Queues: []Queue{{Kind: KindMain, Args: args}},
	}
	for _, d := range alone.ownProperties() {
		c.refuse(d.Judgement == Breaks, variable, "%s=%v: %s", d.Property, d.Found, d.Reason)
	}
}
