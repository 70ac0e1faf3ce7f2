package topology

import (
	"fmt"
	"maps"
	"reflect"
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
	reason     string // %v is the value found
	fix        string // with what property.words fills in
}

// rule returns the first rule that applies to f; nil: a difference is harmless.
func (f *property) rule(of role) *rule {
	for i := range rules {
		r := &rules[i]
		if r.on&of != 0 && slices.Contains(r.properties, f.name) && (r.when == nil || r.when(f)) {
			return r
		}
	}
	return nil
}

func (f *property) judge() Difference {
	d := Difference{Property: f.name, Wanted: f.wanted, Found: f.value, Judgement: Harmless}
	d.Reason = "retries, parking and counting do not depend on it"
	var of role
	var word string
	if f.queue != nil {
		d.Object, d.Name = f.queue.Title(), f.queue.Name
		of, word = queueRole(f.queue)
	} else {
		d.Object, d.Name = f.exchange.Title(), f.exchange.Name
		of, word = f.plan.exchangeRole(f.exchange.Name)
	}
	if r := f.rule(of); r != nil {
		fill := f.words(word)
		d.Judgement, d.Reason, d.Fix = r.judgement, fill(r.reason), fill(r.fix)
	} else if f.queue != nil && f.value != nil && !f.known() {
		d.Judgement, d.Reason = Weaker, "it is not known here what this argument does"
	}
	return d
}

// words returns what fills in a reason or a fix. word is that for the object.
func (f *property) words(word string) func(text string) string {
	takes, another := "drops it", "set "+word+" to another name"
	if dlx, leads := f.all[ArgDLX].(string); leads {
		takes = "dead-letters it to " + ExchangeTitle(dlx)
	}
	if word == "{queue}" { // the queue that exists stays as it is
		another = "use a queue beside it: another {queue}, with the same bindings"
	}
	words := strings.NewReplacer("%v", fmt.Sprint(f.value), "{takes}", takes, "{another}", another)
	return func(text string) string {
		if text == "{delay policy}" {
			return f.plan.FixDelay()
		}
		return f.plan.Say(words.Replace(text))
	}
}

func (f *property) known() bool {
	return f.name == PropertyDurable || f.name == PropertyAutoDelete || knownArguments[f.name] != nil
}

// differences compares an object with what was found of it.
func (f property) differences(wanted amqp.Table) []Difference {
	var all []Difference
	names := maps.Clone(wanted)
	maps.Copy(names, f.all)
	for _, f.name = range slices.Sorted(maps.Keys(names)) {
		if f.wanted, f.value = wanted[f.name], f.all[f.name]; f.wanted != f.value {
			all = append(all, f.judge())
		}
	}
	return all
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
			d := f.judge()
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
	switch {
	case f.value == nil, f.name == ArgTTL && f.queue.Kind == KindRetry: // the waits say what it must be
		return ""
	case !f.known():
		return "not an argument of classic or quorum queues"
	case f.name == argMaxPriority && (n < 0 || n > 255 || !integer):
		return "must be a number from 0 to 255"
	case reflect.TypeOf(f.value) == reflect.TypeOf(knownArguments[f.name]) && (n >= 0 || f.name == ArgDeliveryLimit):
		return ""
	}
	switch knownArguments[f.name].(type) {
	case bool:
		return "must be true or false"
	case string:
		return "must be a text"
	}
	return "must be a number of at least 0"
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
