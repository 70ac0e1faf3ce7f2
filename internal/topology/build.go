package topology

import (
	"cmp"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Build makes the plan of a preset. The error joins everything that is wrong, one line each, in the words of the
// configuration; the plan it returns has passed Validate.
func Build(given Options) (*Plan, error) {
	o, err := Fill(given)
	if err != nil {
		return nil, err
	}
	if err := o.checkNames(&given); err != nil {
		return nil, err // what Validate would say of such a plan is noise
	}
	b := builder{o: o, b: blueprints[o.Preset], names: o.names()}
	b.p = &Plan{
		Preset: o.Preset, Service: o.Service, Queue: o.Queue, MaxRetries: *o.MaxRetries, FrameMax: DefaultFrameMax,
		Quorum: o.QueueType == typeQuorum, Tiered: o.RetryDelays != nil,
		StampQueue: b.b.stamp, CountHeader: b.b.countHeader, Redrive: Route{Key: o.Queue, Queue: o.Queue},
	}
	b.feed()
	if o.RetryExchange != "" {
		b.p.Exchanges = append(b.p.Exchanges, Exchange{Name: o.RetryExchange, Type: "direct", Shared: b.b.wait.shared})
	}
	b.park()
	b.wait()
	b.p.Queues = append(b.p.Queues, Queue{Name: o.Queue, Kind: KindMain, Args: b.serviceArgs()})
	b.back()
	if err := b.p.Validate(); err != nil {
		return nil, err
	}
	b.p.idle = o.idle(&given)
	return b.p, nil
}

// Fill gives every option that was left open the value of the preset. An option that stays empty names something that
// the topology does not have.
func Fill(o Options) (Options, error) {
	o.Preset = cmp.Or(o.Preset, PresetFanout)
	if err := o.check(); err != nil {
		return o, err
	}
	b := blueprints[o.Preset]
	o.QueueType = cmp.Or(o.QueueType, b.queueType, typeClassic)
	o.ExchangeType = cmp.Or(o.ExchangeType, b.exchangeType)
	o.Prefix = cmp.Or(o.Prefix, prefixOf(o.Service))
	for _, name := range []struct {
		value    *string
		template string
	}{
		{&o.Exchange, b.exchanges[0]},
		{&o.Queue, b.queue},
		{&o.RetryExchange, b.wait.exchange},
		{&o.RetryQueue, b.wait.queue},
		{&o.DLX, b.park.exchange},
		{&o.DLQ, b.park.queue},
	} { // in this order: the later ones are made from the earlier ones
		*name.value = cmp.Or(*name.value, o.names().Replace(name.template))
	}
	if o.NoDeadLetter {
		o.DLX, o.DLQ = "", ""
	}
	if o.RetryDelays == nil && len(b.wait.delays) > 0 {
		o.RetryDelays = slices.Clone(b.wait.delays)
	}
	if o.RetryDelays == nil {
		o.RetryDelay = cmp.Or(o.RetryDelay, b.wait.delay)
	}
	if o.MaxRetries == nil {
		n := b.maxRetries
		if len(b.wait.delays) > 0 {
			n = len(o.RetryDelays)
		}
		o.MaxRetries = &n
	}
	return o, nil
}

// names fills the holes of a blueprint.
func (o *Options) names() *strings.Replacer {
	return strings.NewReplacer("{prefix}", o.Prefix, "{service}", o.Service, "{rest}", restOf(o.Service),
		"{exchange}", o.Exchange, "{queue}", o.Queue, "{retry-queue}", o.RetryQueue, "{dlq}", o.DLQ)
}

type builder struct {
	o     Options // filled
	b     *blueprint
	names *strings.Replacer
	p     *Plan
}

// feed binds the service's queue to what it listens to.
func (b *builder) feed() {
	if len(b.o.Bindings) == 0 {
		key := ""
		if b.o.ExchangeType == "topic" {
			key = b.names.Replace(b.b.bindingKey)
		}
		b.bind(Binding{Exchange: b.o.Exchange, Key: key, Queue: b.o.Queue})
		return
	}
	for _, bound := range b.o.Bindings {
		bound.Queue = b.o.Queue
		b.bind(bound)
	}
}

// bind adds a binding of the service's queue. Main exchanges are declared; any other one is somebody else's.
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
	if exchange == b.o.Exchange {
		return true
	}
	preset := b.b.exchanges
	return len(preset) > 1 && b.o.Exchange == preset[0] && slices.Contains(preset, exchange)
}

// park lays the way to the dead-letter queue: directly, or through an exchange.
func (b *builder) park() {
	queue, p := b.o.DLQ, b.b.park
	if queue == "" {
		return
	}
	b.p.Queues = append(b.p.Queues, Queue{Name: queue, Kind: KindDLQ, Args: parkArgs(b.p.Quorum), Shared: p.sharedQueue && queue == b.names.Replace(p.queue)})
	b.p.Park = Route{Exchange: b.o.DLX, Key: queue, Queue: queue}
	if b.o.DLX == "" {
		return
	}
	b.p.Park.Key = b.names.Replace(p.key)
	b.p.Exchanges = append(b.p.Exchanges, Exchange{Name: b.o.DLX, Type: p.exchangeType, Shared: p.shared})
	b.p.Bindings = append(b.p.Bindings, Binding{Exchange: b.o.DLX, Key: b.names.Replace(p.bindingKey), Queue: queue})
}

// wait lays the ways to wait. Where the service's queue dead-letters to the one retry queue, that queue exists with
// tiers too: the queue keeps its dead-letter route, so that tiers can be switched on and off without deleting it, and
// what the broker or another consumer dead-letters must arrive somewhere.
func (b *builder) wait() {
	w := &b.b.wait
	if !b.p.Tiered || !b.b.parksDeadLetters {
		one := b.waitQueue(b.o.RetryQueue, w.key, cmp.Or(b.o.RetryDelay, w.delay))
		one.ByReject = !b.p.Tiered && !b.b.parksDeadLetters
		if !b.p.Tiered {
			b.p.Waits = append(b.p.Waits, one)
		}
		if b.b.redrivesToWait {
			b.p.Redrive = one.Route
		}
	}
	for _, d := range b.o.RetryDelays {
		tier := strings.NewReplacer("{tier}", w.tier(d))
		path := b.waitQueue(tier.Replace(b.names.Replace(w.tierQueue)), tier.Replace(b.names.Replace(w.tierKey)), d)
		path.Tier = w.tier(d)
		b.p.Waits = append(b.p.Waits, path)
	}
}

// waitQueue adds a queue that gives its messages back after delay.
func (b *builder) waitQueue(queue, key string, delay time.Duration) WaitPath {
	w := &b.b.wait
	b.p.Queues = append(b.p.Queues, Queue{
		Name: queue, Kind: KindRetry,
		Args: waitArgs(delay, b.names.Replace(w.backExchange), b.names.Replace(w.backKey), b.p.Quorum),
	})
	r := Route{Exchange: b.o.RetryExchange, Key: cmp.Or(key, queue), Queue: queue}
	if r.Exchange == "" {
		r.Key = queue
	} else {
		b.p.Bindings = append(b.p.Bindings, Binding{Exchange: r.Exchange, Key: r.Key, Queue: r.Queue})
	}
	return WaitPath{Tier: tierLabel(delay), Delay: delay, Route: r}
}

// serviceArgs are the arguments of the service's queue.
func (b *builder) serviceArgs() amqp.Table {
	args := amqp.Table{}
	switch {
	case !b.b.parksDeadLetters:
		args[argDLX], args[argDLKey] = b.o.RetryExchange, b.b.wait.key
	case b.o.DLQ == "":
	default:
		args[argDLX] = b.o.DLX
		if b.b.park.keyed {
			args[argDLKey] = b.names.Replace(b.b.park.key)
		}
	}
	if b.p.Quorum {
		args[argType], args[argDeliveryLimit] = typeQuorum, deliveryLimit
		if args[argDLX] != nil {
			keepDeadLetters(args)
		}
	}
	if b.o.MessageTTL != 0 {
		args[argTTL] = b.o.MessageTTL.Milliseconds()
	}
	if len(args) == 0 {
		return nil
	}
	return args
}

// back makes sure that what comes back through an exchange reaches the service's queue, whatever it listens to.
func (b *builder) back() {
	exchange, key := b.names.Replace(b.b.wait.backExchange), b.names.Replace(b.b.wait.backKey)
	if exchange == "" || len(b.p.Waits) == 0 || slices.Contains(b.p.reach(exchange, key), b.o.Queue) {
		return
	}
	b.bind(Binding{Exchange: exchange, Key: key, Queue: b.o.Queue})
}
