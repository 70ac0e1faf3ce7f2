package topology

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Build makes the plan of a preset. The error joins what ValidateOptions says, one line each.
func Build(given Options) (*Plan, error) {
	p, mistakes := plan(given)
	var errs []error
	for _, m := range mistakes {
		errs = append(errs, fmt.Errorf("%s: %s", m.Variables[0], m.Reason))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return p, nil
}

type builder struct {
	given  *Options
	o      Options // given, filled
	values placeholders
	preset *preset
	p      *Plan
}

// expand makes a plan of a preset that may have problems.
func expand(given *Options, o Options) *Plan {
	b := builder{given: given, o: o, values: o.values(), preset: presets()[o.Preset]}
	t := &b.preset.Plan
	b.p = &Plan{
		Preset: o.Preset, Service: o.Service, Queue: o.Queue, MaxRetries: *o.MaxRetries,
		Quorum: o.QueueType == TypeQuorum, AutoType: given.autoType() && !b.preset.delaysItself(),
		Attempt: o.Attempt, Tiered: o.RetryDelays != nil && !b.preset.delaysItself(), SingleActive: o.SingleActive,
		StampQueue: t.StampQueue, CountHeader: t.CountHeader, Park: b.route(t.Park, 0),
		Redrive: Route{Key: o.Queue, Queue: o.Queue}, arguments: o.QueueArguments,
	}
	b.feed()
	for _, x := range t.Exchanges {
		if x.Name = b.fill(x.Name, 0); x.Name != "" && x.Type != mainType {
			b.p.Exchanges = append(b.p.Exchanges, x)
		}
	}
	for _, q := range t.Queues {
		for _, d := range b.delays(q.Name) {
			b.queue(q, d)
		}
	}
	for _, bound := range t.Bindings[1:] {
		for _, d := range b.delays(bound.Queue) {
			b.bindOther(Binding{Exchange: b.fill(bound.Exchange, 0), Key: b.fill(bound.Key, d), Queue: b.fill(bound.Queue, d)})
		}
	}
	for _, w := range t.Waits {
		for _, d := range b.delays(w.Queue) {
			if tiered(w.Queue) == b.p.Tiered {
				b.p.Waits = append(b.p.Waits, WaitPath{Delay: d, Route: b.route(w.Route, d), By: w.By})
			}
		}
	}
	if t.Redrive != nil {
		b.p.Redrive = b.route(*t.Redrive, 0)
	}
	b.dropIdle()
	b.p.RequeueLimit = b.p.requeueLimit(b.p.OwnQueue().Properties(), 0)
	b.p.notes = b.notes(given)
	return b.p
}

// mainType is the type that a preset gives to its main exchanges.
const mainType = "{exchange-type}"

// delays are those that an object of that name is there for: of the tiers, or the only one.
func (b *builder) delays(template string) []time.Duration {
	o := &b.o
	switch {
	case tiered(template):
		return o.RetryDelays
	case b.preset.delaysItself() && len(o.RetryDelays) > 0:
		return o.RetryDelays[:1]
	}
	return []time.Duration{cmp.Or(o.RetryDelay, time.Duration(b.preset.RetryDelay))}
}

func (b *builder) route(r Route, d time.Duration) Route {
	r = Route{Exchange: b.fill(r.Exchange, d), Key: b.fill(r.Key, d), Queue: b.fill(r.Queue, d)}
	switch {
	case r.Queue == "":
		return Route{}
	case r.Exchange == "":
		r.Key = r.Queue
	}
	return r
}

// feed binds the service's queue to what producers publish to.
func (b *builder) feed() {
	bindings := b.o.Bindings
	if len(bindings) == 0 {
		own := Binding{Exchange: b.o.Exchange}
		if b.o.ExchangeType == "topic" {
			own.Key = b.fill(b.preset.Plan.Bindings[0].Key, 0)
		}
		bindings = []Binding{own}
	}
	for _, bound := range bindings {
		bound.Queue = b.o.Queue
		b.bind(bound)
	}
}

// bind adds a binding. Main exchanges are declared; any other one that the plan does not have belongs to another
// service.
func (b *builder) bind(bound Binding) {
	b.p.Bindings = append(b.p.Bindings, bound)
	if b.p.exchange(bound.Exchange) != nil {
		return
	}
	x := Exchange{Name: bound.Exchange, Shared: true}
	if b.main(bound.Exchange) {
		x.Type = b.o.ExchangeType
	}
	b.p.Exchanges = append(b.p.Exchanges, x)
}

// bindOther adds a binding of the preset, unless an object of it is left out or the exchange leads there already.
func (b *builder) bindOther(bound Binding) {
	if bound.Exchange != "" && b.p.queue(bound.Queue) != nil &&
		!slices.Contains(b.p.reach(bound.Exchange, bound.Key), bound.Queue) {
		b.bind(bound)
	}
}

// main reports whether an exchange is one that producers publish to. Presets with several have them all, unless one is
// named.
func (b *builder) main(exchange string) bool {
	another := slices.ContainsFunc(b.preset.Plan.Exchanges, func(x Exchange) bool {
		return x.Type == mainType && x.Name == exchange
	})
	return exchange == b.o.Exchange || another && b.o.Exchange == b.fill(b.preset.Names["exchange"], 0)
}

// queue adds a queue of the preset, unless it has no name. One that others declare too is shared while it has the
// preset's name.
func (b *builder) queue(q Queue, d time.Duration) {
	template, args := q.Name, amqp.Table{}
	if q.Name = b.fill(template, d); q.Name == "" && q.Kind != KindMain {
		return
	}
	q.Shared = q.Shared && q.Name == b.fill(b.preset.Names[strings.Trim(template, "{}")], 0)
	for name, v := range q.Args {
		args[name] = b.argument(v, d)
	}
	if args[ArgDLX] == "" && (args[ArgDLKey] == "" || args[ArgDLKey] == nil) { // where there is nothing
		delete(args, ArgDLX)
		delete(args, ArgDLKey)
	}
	if q.Args = args; q.Kind == KindMain {
		b.own(&q)
	}
	switch {
	case b.p.Quorum:
		q.makeQuorum()
	case b.given.QueueType == TypeClassic: // named, so that the virtual host's default type does not apply
		q.Args[ArgType] = TypeClassic
	}
	if len(q.Args) == 0 {
		q.Args = nil
	}
	b.p.Queues = append(b.p.Queues, q)
}

// own adds the arguments that options give to the service's queue.
func (b *builder) own(q *Queue) {
	if b.o.SingleActive {
		q.Args[ArgSingleConsumer] = true
	}
	if b.o.MessageTTL != 0 {
		q.Args[ArgTTL] = b.o.MessageTTL.Milliseconds()
	}
	maps.Copy(q.Args, b.o.QueueArguments)
}

// dropIdle removes a retry queue that tiers replace. It stays where the service's queue dead-letters to it: the queue
// keeps its dead-letter route, so that tiers can be switched on and off without deleting it, and what the broker or
// another consumer dead-letters must arrive somewhere.
func (b *builder) dropIdle() {
	exchange, key, _ := b.p.OwnQueue().DeadLetter()
	used := append(b.p.reach(exchange, key), b.p.Redrive.Queue)
	for _, w := range b.p.Waits {
		used = append(used, w.Queue)
	}
	b.p.Queues = slices.DeleteFunc(b.p.Queues, func(q Queue) bool {
		return q.Kind == KindRetry && !slices.Contains(used, q.Name)
	})
	b.p.Bindings = slices.DeleteFunc(b.p.Bindings, func(bound Binding) bool { return b.p.queue(bound.Queue) == nil })
}

// Fill gives every option that is not set the value of the preset. An option that stays empty names an object that the
// topology does not have. Options that ValidateOptions refuses are filled where possible.
func Fill(o Options) Options {
	o.Preset = cmp.Or(o.Preset, PresetFanout)
	b := presets()[o.Preset]
	if b == nil {
		return o
	}
	if o.autoType() {
		o.QueueType = cmp.Or(b.QueueType, TypeClassic)
	}
	o.ExchangeType = cmp.Or(o.ExchangeType, b.ExchangeType)
	for _, n := range o.settable(b) {
		*n.value = cmp.Or(*n.value, o.nameFrom(n.template))
	}
	if o.NoDeadLetter {
		o.DLX, o.DLQ = "", ""
	}
	if o.RetryDelays == nil {
		o.RetryDelay = cmp.Or(o.RetryDelay, time.Duration(b.RetryDelay))
		for _, d := range b.RetryDelays {
			o.RetryDelays = append(o.RetryDelays, time.Duration(d))
		}
	}
	if o.MaxRetries == nil {
		o.MaxRetries = new(cmp.Or(b.MaxRetries, len(o.RetryDelays)))
	}
	return o
}

// settable is a name that can be set alone.
type settable struct {
	word     string // of settings
	value    *string
	template string // that it is made from otherwise; empty: nothing
}

// settable lists the names of o, each behind those it may be made from.
func (o *Options) settable(b *preset) []settable {
	return []settable{
		{"{prefix}", &o.Prefix, "{first}"},
		{"{exchange}", &o.Exchange, b.Names["exchange"]},
		{"{queue}", &o.Queue, b.Names["queue"]},
		{"{retry-exchange}", &o.RetryExchange, b.Names["retry-exchange"]},
		{"{retry-queue}", &o.RetryQueue, b.Names["retry-queue"]},
		{"{dlx}", &o.DLX, b.Names["dlx"]},
		{"{dlq}", &o.DLQ, b.Names["dlq"]},
	}
}

// notes are settings that have no effect, or one that may surprise.
func (b *builder) notes(given *Options) []string {
	var notes []string
	note := func(surprises bool, text string) {
		if surprises {
			notes = append(notes, b.p.Say(text))
		}
	}
	makesNames := strings.Contains(b.preset.Names["retry-exchange"]+b.preset.Names["dlx"], "{exchange}")
	unbound := !slices.ContainsFunc(b.p.Exchanges, func(x Exchange) bool { return b.main(x.Name) })
	note(unbound && given.ExchangeType != "", fmt.Sprintf("{exchange-type}=%s is not used: {bindings} does not name "+
		"exchange %s", given.ExchangeType, b.o.Exchange))
	note(unbound && given.Exchange != "" && !makesNames,
		fmt.Sprintf("{exchange}=%s is not used: {bindings} does not name it", given.Exchange))
	note(given.Prefix == "" && given.Exchange == "" && strings.Contains(b.preset.Names["exchange"], "{prefix}") &&
		!strings.Contains(b.o.Service, "-"),
		fmt.Sprintf("{service}: %q has no hyphen, so its prefix is %q: it shares the main exchange with every other service "+
			"without a hyphen; {prefix} or {exchange} gives it another", b.o.Service, b.o.Prefix))
	return notes
}
