package topology

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// named is a name with the variable that sets it.
type named struct {
	variable, name string
	given          bool // else it was made by the preset
}

func (n named) String() string {
	if n.given {
		return fmt.Sprintf("%s=%q", n.variable, n.name)
	}
	return fmt.Sprintf("%q, which %s would change", n.name, n.variable)
}

// checkNames refuses filled options in which two objects have one name, or a name that must be taken literally is a
// pattern. given are the options before they were filled.
func (o *Options) checkNames(given *Options) error {
	b := blueprints[o.Preset]
	queues := []named{
		{"SIDECAR_QUEUE", o.Queue, given.Queue != ""}, {"SIDECAR_DLQ", o.DLQ, given.DLQ != ""},
	}
	if o.RetryDelays == nil { // with tiers it is what their names start with
		queues = append(queues, named{"SIDECAR_RETRY_QUEUE", o.RetryQueue, given.RetryQueue != ""})
	}
	errs := slices.Concat(clashes("queues", queues), clashes("exchanges", []named{
		{"SIDECAR_EXCHANGE", o.Exchange, given.Exchange != ""},
		{"SIDECAR_RETRY_EXCHANGE", o.RetryExchange, given.RetryExchange != ""}, {"SIDECAR_DLX", o.DLX, given.DLX != ""},
	}))
	for _, d := range o.RetryDelays {
		tier := strings.NewReplacer("{tier}", b.wait.tier(d)).Replace(o.names().Replace(b.wait.tierQueue))
		for _, q := range queues {
			if q.name == tier {
				errs = append(errs, fmt.Errorf("%s is also the name of the retry queue for %s: set another one, or SIDECAR_RETRY_QUEUE", q, tierLabel(d)))
			}
		}
	}
	for _, bound := range o.Bindings {
		if bound.Exchange != "" && bound.Exchange != o.Exchange && (bound.Exchange == o.RetryExchange || bound.Exchange == o.DLX) {
			errs = append(errs, fmt.Errorf("SIDECAR_BINDINGS: exchange %q carries retries or parked messages, which the service would receive", bound.Exchange))
		}
	}
	if o.DLX != "" && b.park.keyed && b.park.exchangeType == "topic" && pattern(o.DLQ) {
		from := named{"SIDECAR_DLQ", o.DLQ, true}
		if given.DLQ == "" {
			from = named{"SIDECAR_QUEUE", o.Queue, true}
		}
		errs = append(errs, fmt.Errorf("%s: the dead-letter queue is bound by its name %q, in which the words * and # match what others park", from, o.DLQ))
	}
	if t := predeclared[o.Exchange]; t != "" && t != o.ExchangeType && o.declaresMain() {
		errs = append(errs, fmt.Errorf("SIDECAR_EXCHANGE=%q is the broker's own and of type %s: set SIDECAR_EXCHANGE_TYPE=%s as well, or use another exchange",
			o.Exchange, t, t))
	}
	return errors.Join(errs...)
}

// declaresMain reports whether the main exchange is in the plan.
func (o *Options) declaresMain() bool {
	return len(o.Bindings) == 0 || slices.ContainsFunc(o.Bindings, func(x Binding) bool { return x.Exchange == o.Exchange })
}

func clashes(what string, all []named) []error {
	var errs []error
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.name != "" && a.name == b.name {
				errs = append(errs, fmt.Errorf("two %s have one name: %s, and %s", what, a, b))
			}
		}
	}
	return errs
}

// pattern reports whether a topic exchange takes a key for more than itself.
func pattern(key string) bool {
	words := strings.Split(key, ".")
	return slices.Contains(words, "*") || slices.Contains(words, "#")
}

// idle names the settings that nothing is made from.
func (o *Options) idle(given *Options) []string {
	b := blueprints[o.Preset]
	bound := o.declaresMain()
	for _, main := range b.exchanges[1:] { // they are of the same type
		bound = bound || o.Exchange == b.exchanges[0] && slices.ContainsFunc(o.Bindings, func(x Binding) bool { return x.Exchange == main })
	}
	if bound {
		return nil
	}
	var idle []string
	if given.ExchangeType != "" {
		idle = append(idle, fmt.Sprintf("SIDECAR_EXCHANGE_TYPE=%s is not used: SIDECAR_BINDINGS does not name exchange %s", given.ExchangeType, o.Exchange))
	}
	makesNames := strings.Contains(b.wait.exchange+b.wait.backExchange, "{exchange}") || strings.Contains(b.park.exchange, "{exchange}")
	if given.Exchange != "" && !makesNames {
		idle = append(idle, fmt.Sprintf("SIDECAR_EXCHANGE=%s is not used: SIDECAR_BINDINGS does not name it", given.Exchange))
	}
	return idle
}
