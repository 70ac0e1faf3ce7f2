package topology

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// name is a name in the plan.
type name struct {
	what     string // it is for
	variable string // that sets it; empty: none does
	value    string
	given    bool
	parts    []part // the option that it was derived from when it was not set
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

// origin names the variables a name rests on, that of one part first.
func (n name) origin(first int) on {
	if n.given || len(n.parts) == 0 {
		return on{n.variable}
	}
	all := on{n.parts[first].variable}
	for _, p := range n.parts {
		all = append(all, p.variable)
	}
	if n.variable != "" {
		all = append(all, n.variable)
	}
	return all
}

// largest is the part that most of a name comes from.
func (n name) largest() int {
	most := 0
	for i, p := range n.parts {
		if p.bytes > n.parts[most].bytes {
			most = i
		}
	}
	return most
}

var hole = regexp.MustCompile(`\{[a-z-]+\}`)

// holes says which variable fills a placeholder of a template.
var holes = map[string]string{
	"{first}": "SIDECAR_SERVICE", "{service}": "SIDECAR_SERVICE", "{rest}": "SIDECAR_SERVICE",
	"{prefix}":   "SIDECAR_PREFIX",
	"{exchange}": "SIDECAR_EXCHANGE", "{queue}": "SIDECAR_QUEUE", "{retry-queue}": "SIDECAR_RETRY_QUEUE",
	"{dlq}":  "SIDECAR_DLQ",
	"{tier}": "SIDECAR_RETRY_DELAYS",
}

// parts returns the variables that were set behind the placeholders of a template.
func (c *optionValidator) parts(template string) []part {
	var all []part
	for _, h := range hole.FindAllString(template, -1) {
		if deeper := c.made[holes[h]]; deeper != "" {
			all = append(all, c.parts(deeper)...)
			continue
		}
		all = append(all, part{holes[h], len(c.o.names().Replace(h))})
	}
	return all
}

// queues lists the queues of the plan, exchanges its exchanges without those of others. Names may be empty.
func (c *optionValidator) queues() []name {
	all := []name{c.setting("service's queue", "SIDECAR_QUEUE"), c.setting("dead-letter queue", "SIDECAR_DLQ")}
	if c.o.plainRetryQueue(c.b) {
		all = append(all, c.setting("retry queue", "SIDECAR_RETRY_QUEUE"))
	}
	for _, d := range c.o.RetryDelays {
		queue, _ := c.o.tierNames(c.b, d)
		all = append(all, name{
			what: "retry queue for " + TierLabel(d), variable: "SIDECAR_RETRY_QUEUE", value: queue,
			parts: c.parts(c.b.wait.tierQueue),
		})
	}
	return all
}

func (c *optionValidator) exchanges() []name {
	return []name{
		c.setting("main exchange", "SIDECAR_EXCHANGE"), c.setting("retry exchange", "SIDECAR_RETRY_EXCHANGE"),
		c.setting("dead-letter exchange", "SIDECAR_DLX"),
	}
}

// keys lists the routing keys that are not names of queues.
func (c *optionValidator) keys() []name {
	const what = "routing key"
	templates := []string{c.b.wait.backKey}
	if len(c.o.Bindings) == 0 && c.o.ExchangeType == "topic" {
		templates = append(templates, c.b.bindingKey)
	}
	var all []name
	for _, t := range templates {
		all = append(all, name{what: what, value: c.o.names().Replace(t), parts: c.parts(t)})
	}
	for _, d := range c.o.RetryDelays {
		_, key := c.o.tierNames(c.b, d)
		all = append(all, name{what: what, value: key, parts: c.parts(c.b.wait.tierKey)})
	}
	return all
}

// setting is a name that a variable sets.
func (c *optionValidator) setting(what, variable string) name {
	template, made := c.made[variable]
	n := name{what: what, variable: variable, value: c.o.Values()[variable], given: !made}
	if made {
		n.parts = c.parts(template)
	}
	return n
}

// checkNames refuses what a broker or the client library would. What was given comes first: other names are made from
// it.
func (c *optionValidator) checkNames() {
	names := slices.Concat(c.queues(), c.exchanges())
	for _, n := range append(names, c.setting("prefix", "SIDECAR_PREFIX")) {
		if !n.given {
			continue
		}
		fault := nameFault(n.value)
		c.refuse(fault != "", n.origin(0), "%s", fault)
		ownExchange := n.variable == "SIDECAR_EXCHANGE" && predeclared[n.value] != ""
		c.refuse(reserved(n.value) && !ownExchange, n.origin(0), "%s", reservedFault)
	}
	for _, n := range append(names, c.keys()...) {
		if n.given || n.variable == "SIDECAR_EXCHANGE" && !c.o.declaresMain(c.b) {
			continue
		}
		fault := nameFault(n.value)
		c.refuse(fault != "", n.origin(n.largest()), "makes the %s %s, which %s", n.what, brief(n.value), fault)
		hint := ""
		if c.made["SIDECAR_PREFIX"] != "" && strings.HasPrefix(n.value, c.o.Prefix+".") {
			hint = "; set SIDECAR_PREFIX"
		}
		c.refuse(reserved(n.value) && n.variable != "", n.origin(0), "makes the %s %s, which %s%s", n.what, brief(n.value),
			reservedFault, hint)
	}
}

// checkClashes refuses two objects of one name.
func (c *optionValidator) checkClashes() {
	c.checkDiffer("queues", c.queues())
	c.checkDiffer("exchanges", c.exchanges())
}

func (c *optionValidator) checkDiffer(what string, all []name) {
	for i, a := range all {
		for _, b := range all[i+1:] {
			if a.value == "" || a.value != b.value {
				continue
			}
			blamed, other := b, a
			if a.given && !b.given {
				blamed, other = a, b
			}
			c.refuse(true, append(blamed.origin(blamed.largest()), other.origin(0)...), "two %s have one name, %s: %s, and %s",
				what, brief(a.value), a, b)
		}
	}
}

// checkBindings refuses what the service's queue must not be bound to, and names that a binding takes for patterns.
func (c *optionValidator) checkBindings() {
	o := &c.o
	const bindings = "SIDECAR_BINDINGS"
	exchange, retry, dlx := c.setting("", "SIDECAR_EXCHANGE"), c.setting("", "SIDECAR_RETRY_EXCHANGE"),
		c.setting("", "SIDECAR_DLX")
	for _, bound := range o.Bindings {
		c.refuse(bound.Exchange == "", on{bindings}, "nothing can be bound to the default exchange")
		c.refuse(nameFault(bound.Key) != "", on{bindings}, "the binding key %s %s", brief(bound.Key), nameFault(bound.Key))
		if err := checkName("exchange", bound.Exchange); err != nil && bound.Exchange != "" {
			c.refuse(true, on{bindings}, "%v", err)
		}
		carries := bound.Exchange != "" && bound.Exchange != o.Exchange &&
			(bound.Exchange == o.RetryExchange || bound.Exchange == o.DLX)
		c.refuse(carries, slices.Concat(on{bindings}, exchange.origin(0), retry.origin(0), dlx.origin(0)),
			"exchange %s carries retries or parked messages, which the service would receive", brief(bound.Exchange))
	}
	if o.DLX != "" && c.b.park.keyed && c.b.park.exchangeType == "topic" {
		dlq := c.setting("", "SIDECAR_DLQ")
		c.refuse(pattern(o.DLQ), append(dlq.origin(0), "SIDECAR_DLX"),
			"the dead-letter queue is bound by its name %s, in which the words * and # match what others park", brief(o.DLQ))
	}
	t := predeclared[o.Exchange]
	c.refuse(t != "" && t != o.ExchangeType && o.declaresMain(c.b),
		append(exchange.origin(0), "SIDECAR_EXCHANGE_TYPE", bindings),
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
