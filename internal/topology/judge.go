package topology

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Judgement rates one property of an existing object: harmless, weaker, or breaking what the plan promises. The zero
// value is the worst.
type Judgement uint8

// The judgements.
const (
	Breaks   Judgement = iota // messages would be lost, looped or misdirected: nothing is consumed
	Weaker                    // used; what can be lost, and when, is reported
	Harmless                  // used as it is
)

// String is the word of `sidecar check` for a judgement.
func (j Judgement) String() string { return [...]string{"problem", "warning", "note"}[j] }

// MarshalText is String, for JSON.
func (j Judgement) MarshalText() ([]byte, error) { return []byte(j.String()), nil }

// Difference is a property whose value in the broker is not the planned one.
type Difference struct {
	Object   string // as QueueTitle and ExchangeTitle write it
	Name     string // of the object
	Property string // an argument's AMQP name, or durable, auto_delete, internal, type
	Wanted   any    // nil: not set
	Found    any    // nil: not set

	Judgement Judgement
	Reason    string // what it comes to
	Fix       string // what to do about it, the smallest change first; empty: nothing has to be done
}

// QueueTitle names a queue for people.
func QueueTitle(name string) string { return fmt.Sprintf("queue %q", name) }

// ExchangeTitle names an exchange for people.
func ExchangeTitle(name string) string { return fmt.Sprintf("exchange %q", name) }

// Title names the queue for people.
func (q *Queue) Title() string { return QueueTitle(q.Name) }

// Title names the exchange for people.
func (x *Exchange) Title() string { return ExchangeTitle(x.Name) }

// Properties of queues and exchanges that are not arguments, by the broker's names.
const (
	PropertyDurable    = "durable"
	PropertyAutoDelete = "auto_delete"
	PropertyInternal   = "internal"
	PropertyType       = "type" // of an exchange
	ArgAlternate       = "alternate-exchange"
)

// property is one property of an existing object, or of one in a plan, to be judged.
type property struct {
	plan     *Plan
	queue    *Queue    // nil: an exchange
	exchange *Exchange // nil: a queue
	all      amqp.Table
	name     string
	wanted   any
	value    any // found; nil: not set
	major    int // version of the broker; 0: unknown
}

// rule judges a property. Of the rules that apply the first one counts.
type rule struct {
	on         role
	properties []string
	when       func(*property) bool // nil: always
	judgement  Judgement
	reason     string   // %v is the value found
	fix        string   // with what Plan.fixOf fills in
	explains   []string // properties whose differences need not be reported beside this one
}

// role is what an object is for, as a set.
type role uint8

const (
	mainQueue role = 1 << iota
	retryQueue
	deadLetterQueue
	mainExchange
	retryExchange // retries are published to it
	parkExchange

	anyQueue    = mainQueue | retryQueue | deadLetterQueue
	anyExchange = mainExchange | retryExchange | parkExchange
)

// role of what is judged, and the variable that gives it another name.
func (f *property) role() (of role, variable string) {
	switch {
	case f.queue != nil && f.queue.Kind == KindMain:
		return mainQueue, "SIDECAR_QUEUE"
	case f.queue != nil && f.queue.Kind == KindRetry:
		return retryQueue, "SIDECAR_RETRY_QUEUE"
	case f.queue != nil:
		return deadLetterQueue, "SIDECAR_DLQ"
	case f.exchange.Name == f.plan.Park.Exchange:
		return parkExchange, "SIDECAR_DLX"
	case slices.ContainsFunc(f.plan.Waits, func(w WaitPath) bool { return w.Exchange == f.exchange.Name }):
		return retryExchange, "SIDECAR_RETRY_EXCHANGE"
	}
	return mainExchange, "SIDECAR_EXCHANGE"
}

// rule returns the first rule that applies to f; nil for an unknown argument.
func (f *property) rule() *rule {
	of, _ := f.role()
	for i := range rules {
		r := &rules[i]
		if r.on&of != 0 && slices.Contains(r.properties, f.name) && (r.when == nil || r.when(f)) {
			return r
		}
	}
	return nil
}

func (f *property) judge() (d Difference, explains []string) {
	d = Difference{Property: f.name, Wanted: f.wanted, Found: f.value}
	if f.queue != nil {
		d.Object, d.Name = f.queue.Title(), f.queue.Name
	} else {
		d.Object, d.Name = f.exchange.Title(), f.exchange.Name
	}
	r := f.rule()
	switch {
	case r == nil && f.value == nil:
		d.Judgement, d.Reason = Harmless, "it works without"
	case r == nil:
		d.Judgement, d.Reason = Weaker, "it is not known here what this argument does"
	default:
		_, variable := f.role()
		found := strings.NewReplacer(f.found()...)
		d.Judgement, d.Reason, explains = r.judgement, found.Replace(r.reason), r.explains
		d.Fix = f.plan.fixOf(found.Replace(r.fix), variable)
	}
	return d, explains
}

// found returns the placeholders of reasons and fixes that depend on the object itself, each with its value.
func (f *property) found() []string {
	takes, dlq := "drops it", ""
	if dlx, leads := f.all[ArgDLX].(string); leads {
		takes = "dead-letters it to " + ExchangeTitle(dlx)
		if !f.plan.FromFile {
			dlq = "SIDECAR_DLQ=QUEUE, the queue behind that exchange, parks in the same place; against the limit: "
		}
	}
	return []string{"%v", fmt.Sprint(f.value), "{takes}", takes, "{dlq}", dlq}
}

// differences compares an object with what was found of it. What one difference explains is not reported.
func (f property) differences(wanted amqp.Table) []Difference {
	var all []Difference
	var explained []string
	names := maps.Clone(wanted)
	maps.Copy(names, f.all)
	for _, f.name = range slices.Sorted(maps.Keys(names)) {
		f.wanted, f.value = wanted[f.name], f.all[f.name]
		if f.wanted == f.value {
			continue
		}
		d, explains := f.judge()
		all = append(all, d)
		for _, other := range explains {
			if other != f.name {
				explained = append(explained, other)
			}
		}
	}
	return slices.DeleteFunc(all, func(d Difference) bool { return slices.Contains(explained, d.Property) })
}

// Compare returns how the queues that exist differ from those of the plan, and nothing about exchanges.
func (p *Plan) Compare(f Found) []Difference {
	var all []Difference
	for i := range p.Queues {
		q := &p.Queues[i]
		if seen := f.Queues[q.Name]; seen != nil {
			all = append(all, property{plan: p, queue: q, all: seen, major: f.Major}.differences(q.Properties())...)
		}
	}
	return all
}

// ownProperties judges the properties that the plan itself gives to its queues. Unknown arguments and values that no
// broker takes are Breaks.
func (p *Plan) ownProperties() []Difference {
	var all []Difference
	for i := range p.Queues {
		q := &p.Queues[i]
		f := property{plan: p, queue: q, all: q.Properties()}
		names := slices.Collect(maps.Keys(f.all))
		if f.all[ArgType] == TypeQuorum {
			names = append(names, ArgDeliveryLimit, ArgStrategy)
		}
		slices.Sort(names)
		for _, f.name = range slices.Compact(names) {
			f.value = f.all[f.name]
			f.wanted = f.value
			if f.name == PropertyDurable || f.name == PropertyAutoDelete || f.name == ArgType && f.value == TypeClassic {
				continue // as in every plan; classic queues have a warning of their own
			}
			d, _ := f.judge()
			if fault := f.fault(); fault != "" {
				d.Judgement, d.Reason = Breaks, fault
			}
			all = append(all, d)
		}
	}
	return all
}

// fault says what a broker does not take in an argument; "" for nothing.
func (f *property) fault() string {
	n, integer := f.value.(int64)
	_, text := f.value.(string)
	_, truth := f.value.(bool)
	switch {
	case f.value == nil, f.name == ArgTTL && f.queue.Kind == KindRetry: // the waits say what it must be
		return ""
	case f.rule() == nil:
		return "not an argument of classic or quorum queues"
	case f.name == ArgSingleConsumer:
		return unless(truth, "must be true or false")
	case slices.Contains(textArguments, f.name):
		return unless(text, "must be a text")
	case f.name == argMaxPriority:
		return unless(integer && n >= 0 && n <= 255, "must be a number from 0 to 255")
	case f.name == ArgDeliveryLimit:
		return unless(integer, "must be a number")
	}
	return unless(integer && n >= 0, "must be a number of at least 0")
}

func unless(good bool, fault string) string {
	if good {
		return ""
	}
	return fault
}

// Properties are those that the queue is declared with: durable, auto_delete and its arguments.
func (q *Queue) Properties() amqp.Table {
	all := amqp.Table{PropertyDurable: true, PropertyAutoDelete: false, ArgType: TypeClassic}
	maps.Copy(all, q.Args)
	return all
}

// Properties are those that the exchange is declared with.
func (x *Exchange) Properties() amqp.Table {
	return amqp.Table{
		PropertyType: x.Type, PropertyDurable: true, PropertyAutoDelete: false, PropertyInternal: false,
	}
}
