package topology

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"sidecar/internal/amqpvalue"
)

// halves returns the parts of a service name before and after its first hyphen, "default" and all of it without one.
func halves(service string) (first, rest string) {
	if first, rest, found := strings.Cut(service, "-"); found {
		return first, rest
	}
	return "default", service
}

// nameFrom fills the placeholders of a preset's template.
func (o *Options) nameFrom(template string) string {
	return o.values().Replace(o.scope().Replace(template))
}

// values are those of the placeholders.
func (o *Options) values() placeholders {
	first, rest := halves(o.Service)
	return placeholders{
		"{first}": first, "{rest}": rest, "{prefix}": o.Prefix, "{service}": o.Service, "{subscription}": o.Subscription,
		"{exchange}": o.Exchange, "{queue}": o.Queue, "{retry-exchange}": o.RetryExchange,
		"{retry-queue}": o.RetryQueue, "{dlx}": o.DLX, "{dlq}": o.DLQ,
		mainType: o.ExchangeType,
	}
}

// placeholders are names in braces and their values. A strings.Replacer makes a tree of all names for each set of
// values: a seventh of what a start allocates.
type placeholders map[string]string

// Replace returns the template with the values in place of their names.
func (p placeholders) Replace(template string) string {
	if !strings.Contains(template, "{") {
		return template
	}
	return placeholder.ReplaceAllStringFunc(template, func(name string) string {
		if value, ok := p[name]; ok {
			return value
		}
		return name
	})
}

var (
	unnamed = placeholders{"{scope}": "{service}", "{name}": "{service}", "{named}": ""}
	named   = placeholders{
		"{scope}": "{service}.{subscription}", "{name}": "{subscription}",
		"{named}": "{service}.{subscription}", "{rest}": "{subscription}",
	}
)

// scope replaces the placeholders that mean something else with subscriptions.
func (o *Options) scope() placeholders {
	if o.Subscription == "" {
		return unnamed
	}
	return named
}

// TierLabel writes a delay the short way: 30s, 5m, 1h30m, 500ms.
func TierLabel(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// predeclared are the exchanges every virtual host has. Other names that begin with "amq." are refused by the broker.
var predeclared = map[string]string{
	"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic",
	"amq.headers": "headers", "amq.match": "headers",
}

// nameFault says what a broker or the client library would refuse, or silently change, in a name or a routing key; ""
// for nothing.
func nameFault(name string) string {
	switch {
	case len(name) > amqpvalue.ShortMax:
		return fmt.Sprintf("has %d bytes and may have %d", len(name), amqpvalue.ShortMax)
	case !utf8.ValidString(name):
		return "is not UTF-8"
	case strings.ContainsFunc(name, unicode.IsControl): // the broker strips line ends from the names of queues
		return "holds a control character"
	}
	return ""
}

// reserved reports whether the broker keeps a name for itself. Those of predeclared exist and can be used.
func reserved(name string) bool { return strings.HasPrefix(name, "amq.") }

const reservedFault = "starts with amq. and is reserved by the broker"

// objectFault is nameFault for the name of an object that a plan declares or is bound to.
func objectFault(name string) string {
	if reserved(name) && predeclared[name] == "" {
		return reservedFault
	}
	return nameFault(name)
}

// brief quotes a name for a sentence, the beginning of a very long one.
func brief(name string) string {
	const longest = 60
	if len(name) > longest {
		return fmt.Sprintf("%q…", name[:longest])
	}
	return strconv.Quote(name)
}
