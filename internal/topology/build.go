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

func newBuilder(given *Options, o Options) *builder {
	b := builder{given: given, o: o, preset: blueprints[o.Preset], typed: given.QueueType == TypeClassic}
	b.p = &Plan{
		Preset: o.Preset, Service: o.Service, Queue: o.Queue, MaxRetries: *o.MaxRetries,
		Quorum: o.QueueType == TypeQuorum, AutoType: given.autoType() && !b.preset.wait.inQueue,
		Attempt: o.Attempt, Tiered: o.RetryDelays != nil && !b.preset.wait.inQueue, SingleActive: o.SingleActive,
		StampQueue: b.preset.wait.backExchange != "", CountHeader: b.preset.countHeader,
		Redrive: Route{Key: o.Queue, Queue: o.Queue}, arguments: o.QueueArguments,
	}
	return &b
}

// plan makes a plan that may have problems.
func (b *builder) plan() *Plan {
	o := &b.o
	// The order of these steps is the order of declaration that Plan.Queues needs: dead-letter queue, retry queues,
	// service's queue.
	b.feed()
	if o.RetryExchange != "" {
		b.p.Exchanges = append(b.p.Exchanges, Exchange{Name: o.RetryExchange, Type: "direct", Shared: b.preset.wait.shared})
	}
	b.park()
	b.wait()
	b.service()
	b.back()
	b.p.RequeueLimit = b.p.requeueLimit(b.p.OwnQueue().Properties(), 0)
	b.p.notes = b.notes(b.given)
	return b.p
}

// Fill gives every option that is not set the value of the preset. An option that stays empty names an object that the
// topology does not have. Options that ValidateOptions refuses are filled where possible.
func Fill(o Options) Options {
	o.Preset = cmp.Or(o.Preset, PresetFanout)
	b := blueprints[o.Preset]
	if b == nil {
		return o
	}
	if o.autoType() {
		o.QueueType = cmp.Or(b.queueType, TypeClassic)
	}
	o.ExchangeType = cmp.Or(o.ExchangeType, b.exchangeType)
	for _, n := range o.settable(b) {
		*n.value = cmp.Or(*n.value, o.nameFrom(n.template))
	}
	if o.NoDeadLetter {
		o.DLX, o.DLQ = "", ""
	}
	if o.RetryDelays == nil {
		o.RetryDelay, o.RetryDelays = cmp.Or(o.RetryDelay, b.wait.delay), slices.Clone(b.wait.delays)
	}
	if o.MaxRetries == nil {
		o.MaxRetries = new(cmp.Or(b.maxRetries, len(o.RetryDelays)))
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
func (o *Options) settable(b *blueprint) []settable {
	return []settable{
		{"{prefix}", &o.Prefix, "{first}"},
		{"{exchange}", &o.Exchange, b.exchanges[0]},
		{"{queue}", &o.Queue, b.queue},
		{"{retry-exchange}", &o.RetryExchange, b.wait.exchange},
		{"{retry-queue}", &o.RetryQueue, b.wait.queue},
		{"{dlx}", &o.DLX, b.park.exchange},
		{"{dlq}", &o.DLQ, b.park.queue},
	}
}

// plainRetryQueue reports whether there is the one retry queue, of filled options. Where the service's queue
// dead-letters to it, it exists with tiers too: the queue keeps its dead-letter route, so that tiers can be switched on
// and off without deleting it, and what the broker or another consumer dead-letters must arrive somewhere.
func (o *Options) plainRetryQueue(b *blueprint) bool {
	return o.RetryDelays == nil || !b.parksDeadLetters
}

// tierNames are the queue of a tier and the key that leads to it; an empty key is the queue's name.
func (o *Options) tierNames(b *blueprint, d time.Duration) (queue, key string) {
	tier := placeholders{"{tier}": b.wait.tier(d)}
	return tier.Replace(o.nameFrom(b.wait.tierQueue)), tier.Replace(o.nameFrom(b.wait.tierKey))
}

type builder struct {
	given  *Options
	o      Options // given, filled
	preset *blueprint
	typed  bool // every declaration names the type, so that the virtual host's default type does not apply
	p      *Plan
}

func (b *builder) feed() {
	bindings := b.o.Bindings
	if len(bindings) == 0 {
		own := Binding{Exchange: b.o.Exchange}
		if b.o.ExchangeType == "topic" {
			own.Key = b.o.nameFrom(b.preset.bindingKey)
		}
		bindings = []Binding{own}
	}
	for _, bound := range bindings {
		bound.Queue = b.o.Queue
		b.bind(bound)
	}
}

// bind adds a binding of the service's queue. Main exchanges are declared; any other one belongs to another service.
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

// main reports whether an exchange is one that producers publish to. Presets with several have them all, unless one is
// named.
func (b *builder) main(exchange string) bool {
	all := b.preset.exchanges
	return exchange == b.o.Exchange || b.o.Exchange == all[0] && slices.Contains(all, exchange)
}

// park sets the route to the dead-letter queue: directly, or through an exchange.
func (b *builder) park() {
	queue, p := b.o.DLQ, b.preset.park
	if queue == "" {
		return
	}
	b.queue(Queue{
		Name: queue, Kind: KindDLQ, Args: amqp.Table{}, Shared: p.sharedQueue && queue == b.o.nameFrom(p.queue),
	})
	b.p.Park = Route{Exchange: b.o.DLX, Key: queue, Queue: queue}
	if b.o.DLX == "" {
		return
	}
	b.p.Park.Key = b.o.nameFrom(p.key)
	b.p.Exchanges = append(b.p.Exchanges, Exchange{Name: b.o.DLX, Type: p.exchangeType, Shared: p.shared})
	b.p.Bindings = append(b.p.Bindings, Binding{Exchange: b.o.DLX, Key: b.parkKey(), Queue: queue})
}

// parkKey is the key by which the exchange for parked messages routes; a fanout exchange routes by none.
func (b *builder) parkKey() string {
	if b.preset.park.exchangeType == "fanout" {
		return ""
	}
	return b.o.nameFrom(b.preset.park.key)
}

func (b *builder) wait() {
	w := &b.preset.wait
	if w.inQueue {
		shortest, _ := b.o.delayRange()
		b.p.Waits = []WaitPath{{Delay: shortest, Route: Route{Key: b.o.Queue, Queue: b.o.Queue}, By: ByDelay}}
		return
	}
	if b.o.plainRetryQueue(b.preset) {
		one := b.waitQueue(b.o.RetryQueue, w.key, cmp.Or(b.o.RetryDelay, w.delay))
		if !b.p.Tiered && !b.preset.parksDeadLetters {
			one.By = ByReject
		}
		if !b.p.Tiered {
			b.p.Waits = append(b.p.Waits, one)
		}
		if b.preset.redrivesToWait {
			b.p.Redrive = one.Route
		}
	}
	for _, d := range b.o.RetryDelays {
		queue, key := b.o.tierNames(b.preset, d)
		b.p.Waits = append(b.p.Waits, b.waitQueue(queue, key, d))
	}
}

// waitQueue adds a queue that gives its messages back after delay.
func (b *builder) waitQueue(queue, key string, delay time.Duration) WaitPath {
	w := &b.preset.wait
	b.queue(Queue{Name: queue, Kind: KindRetry, Args: amqp.Table{
		ArgTTL: delay.Milliseconds(), ArgDLX: b.o.nameFrom(w.backExchange), ArgDLKey: b.o.nameFrom(w.backKey),
	}})
	r := Route{Key: queue, Queue: queue}
	if b.o.RetryExchange != "" {
		r.Exchange, r.Key = b.o.RetryExchange, cmp.Or(key, queue)
		b.p.Bindings = append(b.p.Bindings, Binding{Exchange: r.Exchange, Key: r.Key, Queue: queue})
	}
	return WaitPath{Delay: delay, Route: r, By: ByPublish}
}

func (b *builder) service() {
	args := amqp.Table{}
	switch {
	case !b.preset.parksDeadLetters:
		args[ArgDLX], args[ArgDLKey] = b.o.RetryExchange, b.preset.wait.key
	case b.preset.parksDeadLetters && b.o.DLQ != "":
		args[ArgDLX] = b.o.DLX
		if key := b.parkKey(); key != "" {
			args[ArgDLKey] = key
		}
	}
	if b.preset.wait.inQueue {
		shortest, longest := b.o.delayRange()
		args[ArgRetryType], args[ArgDeliveryLimit] = delayFailed, ownLimit(*b.o.MaxRetries)
		args[ArgRetryMin], args[ArgRetryMax] = shortest.Milliseconds(), longest.Milliseconds()
	}
	if b.o.SingleActive {
		args[ArgSingleConsumer] = true
	}
	if b.o.MessageTTL != 0 {
		args[ArgTTL] = b.o.MessageTTL.Milliseconds()
	}
	maps.Copy(args, b.o.QueueArguments)
	b.queue(Queue{Name: b.o.Queue, Kind: KindMain, Args: args})
}

func (b *builder) queue(q Queue) {
	switch {
	case b.p.Quorum:
		q.makeQuorum()
	case b.typed:
		q.Args[ArgType] = TypeClassic
	}
	if len(q.Args) == 0 {
		q.Args = nil
	}
	b.p.Queues = append(b.p.Queues, q)
}

// back adds the binding that returns retries from an exchange to the service's queue, if no other binding does.
func (b *builder) back() {
	exchange, key := b.o.nameFrom(b.preset.wait.backExchange), b.o.nameFrom(b.preset.wait.backKey)
	if exchange != "" && !slices.Contains(b.p.reach(exchange, key), b.o.Queue) {
		b.bind(Binding{Exchange: exchange, Key: key, Queue: b.o.Queue})
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
	w := &b.preset.wait
	makesNames := strings.Contains(w.exchange+w.backExchange+b.preset.park.exchange, "{exchange}")
	unbound := !slices.ContainsFunc(b.p.Exchanges, func(x Exchange) bool { return b.main(x.Name) })
	note(unbound && given.ExchangeType != "", fmt.Sprintf("{exchange-type}=%s is not used: {bindings} does not name "+
		"exchange %s", given.ExchangeType, b.o.Exchange))
	note(unbound && given.Exchange != "" && !makesNames,
		fmt.Sprintf("{exchange}=%s is not used: {bindings} does not name it", given.Exchange))
	note(given.Prefix == "" && given.Exchange == "" && strings.Contains(b.preset.exchanges[0], "{prefix}") &&
		!strings.Contains(b.o.Service, "-"),
		fmt.Sprintf("{service}: %q has no hyphen, so its prefix is %q: it shares the main exchange with every other service "+
			"without a hyphen; {prefix} or {exchange} gives it another", b.o.Service, b.o.Prefix))
	return notes
}
