package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

type name struct {
	what     string // it is for
	variable string // that sets it; empty: none does
	value    string
	given    bool
	parts    []part // what it was made from when it was not given
}

// part is a piece of a name that comes from a variable.
type part struct {
	variable string
	bytes    int
}

func (n name) String() string {
	if n.given {
		return n.variable
	}
	return fmt.Sprintf("the %s, which %s would change", n.what, n.variable)
}

// origin names the variables a name rests on, that of its first part first.
func (n name) origin() on {
	var all on
	for _, p := range n.parts {
		all = append(all, p.variable)
	}
	if n.variable != "" && !n.given {
		all = append(all, n.variable)
	}
	return all
}

// largestFirst is n with the part that most of it comes from in front.
func (n name) largestFirst() name {
	n.parts = slices.SortedStableFunc(slices.Values(n.parts), func(a, b part) int { return b.bytes - a.bytes })
	return n
}

var placeholder = regexp.MustCompile(`\{[a-z-]+\}`)

// fills is the variable that fills each placeholder of a template.
var fills = map[string]string{
	"{first}": "SIDECAR_SERVICE", "{service}": "SIDECAR_SERVICE", "{rest}": "SIDECAR_SERVICE",
	"{subscription}": "SIDECAR_SUBSCRIPTIONS",
	"{prefix}":       "SIDECAR_PREFIX",
	"{exchange}":     "SIDECAR_EXCHANGE", "{queue}": "SIDECAR_QUEUE", "{retry-queue}": "SIDECAR_RETRY_QUEUE",
	"{dlq}":  "SIDECAR_DLQ",
	"{tier}": "SIDECAR_RETRY_DELAYS",
}

func (c *optionValidator) collectNames() {
	filled := c.o.settable(c.b)
	for i, s := range c.given.settable(c.b) {
		n := name{what: s.purpose, variable: s.variable, value: *filled[i].value, given: *s.value != ""}
		n.parts = []part{{n.variable, len(n.value)}}
		if !n.given {
			n.parts = c.parts(s.template)
		}
		c.names[n.variable] = n
	}
}

// parts returns the variables that were set behind the placeholders of a template.
func (c *optionValidator) parts(template string) []part {
	var all []part
	for _, h := range placeholder.FindAllString(c.o.scope().Replace(template), -1) {
		if n, named := c.names[fills[h]]; named {
			all = append(all, n.parts...)
		} else {
			all = append(all, part{fills[h], len(c.o.nameFrom(h))})
		}
	}
	return all
}

// queues lists the queues of the plan, exchanges its exchanges without those of others. Names may be empty.
func (c *optionValidator) queues() []name {
	all := []name{c.names["SIDECAR_QUEUE"], c.names["SIDECAR_DLQ"]}
	if c.o.plainRetryQueue(c.b) {
		all = append(all, c.names["SIDECAR_RETRY_QUEUE"])
	}
	for _, d := range c.o.tiers(c.b) {
		queue, _ := c.o.tierNames(c.b, d)
		all = append(all, name{
			what: "retry queue for " + TierLabel(d), variable: "SIDECAR_RETRY_QUEUE", value: queue,
			parts: c.parts(c.b.wait.tierQueue),
		})
	}
	return all
}

func (c *optionValidator) exchanges() []name {
	return []name{c.names["SIDECAR_EXCHANGE"], c.names["SIDECAR_RETRY_EXCHANGE"], c.names["SIDECAR_DLX"]}
}

// keys lists the routing keys that are not names of queues.
func (c *optionValidator) keys() []name {
	var all []name
	add := func(key, template string) {
		all = append(all, name{what: "routing key", value: key, parts: c.parts(template)})
	}
	add(c.o.nameFrom(c.b.wait.backKey), c.b.wait.backKey)
	if len(c.o.Bindings) == 0 && c.o.ExchangeType == "topic" {
		add(c.o.nameFrom(c.b.bindingKey), c.b.bindingKey)
	}
	for _, d := range c.o.tiers(c.b) {
		_, key := c.o.tierNames(c.b, d)
		add(key, c.b.wait.tierKey)
	}
	return all
}

func (c *optionValidator) checkNames() {
	for _, n := range slices.Concat(c.queues(), c.exchanges(), c.keys()) {
		if n.given || n.variable == "SIDECAR_EXCHANGE" && !c.o.declaresMain(c.b) {
			continue
		}
		const makes = "makes the %s %s, which %s%s"
		fault, hint := nameFault(n.value), ""
		c.refuse(fault != "", n.largestFirst().origin(), makes, n.what, brief(n.value), fault, hint)
		if !c.names["SIDECAR_PREFIX"].given && strings.HasPrefix(n.value, c.o.Prefix+".") {
			hint = "; set SIDECAR_PREFIX"
		}
		c.refuse(reserved(n.value) && n.variable != "", n.origin(), makes, n.what, brief(n.value), reservedFault, hint)
	}
}

func (c *optionValidator) checkClashes(what string, all []name) {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.value == "" || a.value != b.value {
				continue
			}
			blamed, other := b, a
			if a.given && !b.given {
				blamed, other = a, b
			}
			c.refuse(true, append(blamed.largestFirst().origin(), other.origin()...),
				"two %s have one name, %s: %s, and %s", what, brief(a.value), a, b)
		}
	}
}

// checkBindings refuses what the service's queue must not be bound to, and names that a binding takes for patterns.
func (c *optionValidator) checkBindings() {
	o := &c.o
	const bindings = "SIDECAR_BINDINGS"
	var exchanges on
	for _, n := range c.exchanges() {
		exchanges = append(exchanges, n.origin()...)
	}
	for _, bound := range o.Bindings {
		fault := objectFault(bound.Exchange)
		c.refuse(fault != "", on{bindings}, "exchange %s %s", brief(bound.Exchange), fault)
		carries := bound.Exchange != "" && bound.Exchange != o.Exchange &&
			(bound.Exchange == o.RetryExchange || bound.Exchange == o.DLX)
		c.refuse(carries, append(on{bindings}, exchanges...),
			"exchange %s carries retries or parked messages, which the service would receive", brief(bound.Exchange))
	}
	c.refuse(o.DLX != "" && c.b.park.exchangeType == "topic" && pattern(o.DLQ),
		append(c.names["SIDECAR_DLQ"].origin(), "SIDECAR_DLX"),
		"the dead-letter queue is bound by its name %s, in which the words * and # match what others park", brief(o.DLQ))
	t := predeclared[o.Exchange]
	c.refuse(t != "" && t != o.ExchangeType && o.declaresMain(c.b),
		append(c.names["SIDECAR_EXCHANGE"].origin(), "SIDECAR_EXCHANGE_TYPE", bindings),
		"is the broker's own and of type %s: set SIDECAR_EXCHANGE_TYPE=%s as well, or use another exchange", t, t)
}

// declaresMain reports whether the main exchange is in the plan of filled options: because the service's queue is bound
// to it, or because retries return through it.
func (o *Options) declaresMain(b *blueprint) bool {
	return len(o.Bindings) == 0 || b.wait.backExchange == "{exchange}" ||
		slices.ContainsFunc(o.Bindings, func(x Binding) bool { return x.Exchange == o.Exchange })
}

// pattern reports whether a topic exchange takes a key for more than itself.
func pattern(key string) bool {
	words := strings.Split(key, ".")
	return slices.Contains(words, "*") || slices.Contains(words, "#")
}
