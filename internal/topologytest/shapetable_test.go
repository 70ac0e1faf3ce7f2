package topologytest

import (
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"sidecar/internal/topology"
)

// The objects of the preset fanout for the service orders-svc.
const (
	ownQueue      = "orders.queue.orders-svc"
	waitQueue     = "orders.retry-queue.orders-svc"
	deadQueue     = "orders.dlq.orders-svc"
	mainExchange  = "orders.main-exchange"
	retryExchange = "orders.retry-exchange.orders-svc"
)

// object is an exchange or queue as a user declared it.
type object struct {
	name       string
	kind       string // of an exchange; empty: it is a queue
	args       amqp.Table
	transient  bool
	autoDelete bool
	exclusive  bool // held by another connection
	internal   bool
}

// shape is what exists before the sidecar comes, and what the sidecar has to find.
type shape struct {
	options topology.Options // the preset; none: fanout
	given   []object
	finds   []string // the judgement and the property of each finding but notes, in any order; "" is none

	policy string // on the service's queue

	early     int  // answers 425 before the message is taken; 0: few
	unhurried bool // delays are those of production: only one retry is tried
	hasty     bool // a retry may return before its delay is over
}

// with returns args and more: names and values by turns.
func with(args amqp.Table, more ...any) amqp.Table {
	all := maps.Clone(args)
	if all == nil {
		all = amqp.Table{}
	}
	for i := 0; i < len(more); i += 2 {
		all[more[i].(string)] = more[i+1] //nolint:forcetypeassert // a name
	}
	return all
}

func queue(name string, args ...any) []object {
	return []object{{name: name, args: with(nil, args...)}}
}

// quorum is the service's queue of fanout as a quorum queue.
func quorum(args ...any) []object {
	return queue(ownQueue, append([]any{"x-queue-type", "quorum"}, args...)...)
}

// waits is the retry queue of fanout with more arguments.
func waits(more ...any) []object {
	planned := amqp.Table{argTTL: brief.Milliseconds(), argDLX: "", argDLKey: ownQueue}
	return []object{{name: waitQueue, args: with(planned, more...)}}
}

// inQuorum are options with queues of the other type.
var inQuorum = topology.Options{QueueType: topology.TypeQuorum}

// beside is what exists, and what the sidecar finds of it.
func beside(given []object, finds ...string) shape { return shape{given: given, finds: finds} }

const (
	argTTL   = "x-message-ttl"
	argLimit = "x-delivery-limit"
)

// shapes are what users declare by hand, by name, on a broker of that version.
func shapes(major, minor int) map[string]shape {
	limit := "warning x-delivery-limit" // of a quorum queue that does not say it
	if major == 3 {
		limit = ""
	}
	all := map[string]shape{}
	for _, some := range []map[string]shape{serviceQueues(), quorumQueues(limit), retryQueues(), deadLetterQueues(), exchanges(), bareQueues(limit), delaying()} {
		maps.Copy(all, some)
	}
	if major == 3 {
		all["quorum, limit -1"] = shape{given: quorum(argLimit, -1), finds: []string{"problem x-delivery-limit"}}
	}
	if major == 4 && minor >= 3 {
		maps.Copy(all, newest())
	}
	return all
}

// serviceQueues are classic queues of the service.
func serviceQueues() map[string]shape {
	const hour = 3_600_000
	return map[string]shape{
		"bare":                   beside(queue(ownQueue)),
		"limited, rejecting":     beside(queue(ownQueue, "x-max-length", 1000, "x-overflow", "reject-publish"), "warning x-max-length"),
		"single active":          beside(queue(ownQueue, "x-single-active-consumer", true)),
		"message TTL":            beside(queue(ownQueue, argTTL, hour), "warning x-message-ttl"),
		"dead letters elsewhere": beside(append(queue(ownQueue, argDLX, "aside"), object{name: "aside", kind: "fanout"})),
		"message TTL, round":     beside(queue(ownQueue, argDLX, retryExchange, argDLKey, "retry", argTTL, hour), "warning x-message-ttl"),
		"auto-delete":            beside([]object{{name: ownQueue, autoDelete: true}}, "problem auto_delete"),
		"expires":                beside(queue(ownQueue, "x-expires", hour), "problem x-expires"),
		"exclusive":              beside([]object{{name: ownQueue, exclusive: true}}, "problem "),
		"transient":              beside([]object{{name: ownQueue, transient: true}}, "warning durable"),
		"stream":                 beside(queue(ownQueue, "x-queue-type", "stream"), "problem x-queue-type"),
	}
}

// quorumQueues are quorum queues of the service.
func quorumQueues(limit string) map[string]shape {
	return map[string]shape{
		"quorum":                   {given: quorum(), finds: []string{limit}, early: 22},
		"quorum, limit 3":          {given: quorum(argLimit, 3), finds: []string{"warning x-delivery-limit"}, early: 8},
		"quorum, limit 2":          beside(quorum(argLimit, 2), "problem x-delivery-limit"),
		"quorum, limit -1":         {given: quorum(argLimit, -1), early: 22},
		"quorum, at most once":     beside(quorum(argDLX, retryExchange, argDLKey, "retry"), limit),
		"quorum, limited":          beside(quorum("x-max-length", 1000), limit, "warning x-max-length"),
		"quorum, limited, rejects": beside(quorum("x-max-length", 1000, "x-overflow", "reject-publish"), limit),
	}
}

// newest are shapes that only a broker from version 4.3 on takes.
func newest() map[string]shape {
	const limit = "warning x-delivery-limit"
	delays := func(what string) []object {
		return quorum("x-delayed-retry-type", what, "x-delayed-retry-min", 100, "x-delayed-retry-max", 200)
	}
	return map[string]shape{
		"short consumer timeout": beside(quorum("x-consumer-timeout", 20_000), limit, "problem x-consumer-timeout"),
		"delayed retries":        {given: delays("all"), finds: []string{limit, "warning x-delayed-retry-type"}, early: 3},
	}
}

// delaying are shapes of the queue of native, on RabbitMQ 4.3.
func delaying() map[string]shape {
	const kind, shortest, longest = "x-delayed-retry-type", "x-delayed-retry-min", "x-delayed-retry-max"
	native := topology.Options{Preset: topology.PresetNative, RetryDelay: brief}
	slow := topology.Options{Preset: topology.PresetNative, RetryDelay: 5 * time.Second}
	own := func(more ...any) []object {
		planned := amqp.Table{
			argDLX: "", argDLKey: deadQueue, "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish", "x-queue-type": "quorum",
			argLimit: 40, kind: "failed", shortest: brief.Milliseconds(), longest: brief.Milliseconds(),
		}
		args := with(planned, more...)
		maps.DeleteFunc(args, func(_ string, v any) bool { return v == nil })
		return []object{{name: ownQueue, args: args}}
	}
	const delays = `{"delayed-retry-type": "failed", "delayed-retry-min": 150, "delayed-retry-max": 150}`
	const undelayed, elsewhere, limit = "warning x-delayed-retry-type", "warning x-dead-letter-exchange", "warning x-delivery-limit"
	all := map[string]shape{
		"as declared":            {given: own()},
		"by policy, bare":        {given: quorum(), policy: delays, finds: []string{elsewhere, undelayed, limit}},
		"by policy":              {given: own(kind, nil, shortest, nil, longest, nil), policy: delays, finds: []string{undelayed}},
		"shorter policy":         {given: own(shortest, 5000, longest, 5000), options: slow, policy: delays, hasty: true},
		"everything waits":       {given: own(kind, "all"), finds: []string{undelayed}, early: 3},
		"returns wait":           beside(own(kind, "returned"), "problem x-delayed-retry-type"),
		"classic":                beside(queue(ownQueue), elsewhere, undelayed, "problem x-queue-type"),
		"other delays":           beside(own(shortest, 100, longest, 900)),
		"limit 3":                {given: own(argLimit, 3), finds: []string{limit}, early: 5},
		"limit 1":                beside(own(argLimit, 1), "problem x-delivery-limit"),
		"dead letters elsewhere": beside(append([]object{{name: "aside", kind: "fanout"}}, own(argDLX, "aside", argDLKey, nil)...), elsewhere),
	}
	named := map[string]shape{}
	for name, s := range all {
		if s.options.Preset == "" {
			s.options = native
		}
		named["native, "+name] = s
	}
	return named
}

func retryQueues() map[string]shape {
	const hour = 3_600_000
	return map[string]shape{
		"another delay":                 beside(waits(argTTL, hour)),
		"no delay":                      beside(queue(waitQueue, argDLX, "", argDLKey, ownQueue), "warning x-message-ttl"),
		"retries limited":               {given: waits("x-max-length", 1), finds: []string{"warning x-max-length"}, hasty: true},
		"retries limited, rejects":      beside(waits("x-max-length", 1, "x-overflow", "reject-publish")),
		"returns elsewhere":             beside(waits(argDLKey, "elsewhere"), "problem x-dead-letter-routing-key"),
		"returns nowhere":               beside(queue(waitQueue, argTTL, brief.Milliseconds()), "problem x-dead-letter-exchange"),
		"retry queue expires":           beside(waits("x-expires", hour), "problem x-expires"),
		"retry queue auto-delete":       beside([]object{{name: waitQueue, args: waits()[0].args, autoDelete: true}}, "warning auto_delete"),
		"retry queue at most once":      {options: inQuorum, given: waits("x-queue-type", "quorum"), finds: []string{"warning x-dead-letter-strategy"}},
		"retry queue of the other type": {options: inQuorum, given: waits(), finds: []string{"warning x-queue-type"}},
	}
}

func deadLetterQueues() map[string]shape {
	return map[string]shape{
		"parked expire":      beside(queue(deadQueue, argTTL, 3_600_000), "problem x-message-ttl"),
		"parked limited":     beside(queue(deadQueue, "x-max-length", 1000), "warning x-max-length"),
		"parked in classic":  {options: inQuorum, given: queue(deadQueue), finds: []string{"warning x-queue-type"}},
		"parked, one reader": beside(queue(deadQueue, "x-single-active-consumer", true), "warning x-single-active-consumer"),
	}
}

func exchanges() map[string]shape {
	alternate := amqp.Table{"alternate-exchange": "amq.fanout"}
	return map[string]shape{
		"main exchange internal":     beside([]object{{name: mainExchange, kind: "fanout", internal: true}}),
		"main exchange topic":        beside([]object{{name: mainExchange, kind: "topic"}}, "problem type"),
		"retry exchange transient":   beside([]object{{name: retryExchange, kind: "direct", transient: true}}, "warning durable"),
		"retry exchange auto-delete": beside([]object{{name: retryExchange, kind: "direct", autoDelete: true}}, "warning auto_delete"),
		"retry exchange internal":    beside([]object{{name: retryExchange, kind: "direct", internal: true}}, "problem internal"),
		"retry exchange's alternate": beside([]object{{name: retryExchange, kind: "direct", args: alternate}}, "warning alternate-exchange"),
	}
}

// bareQueues are queues without arguments beside the other presets, and the ladder of another system.
func bareQueues(limit string) map[string]shape {
	bound := func(exchange, key string) []topology.Binding {
		return []topology.Binding{{Exchange: exchange, Key: key}}
	}
	perQueue := topology.Options{Preset: topology.PresetPerQueue, RetryDelay: brief, Prefix: "shop", Exchange: "shop.events", Bindings: bound("shop.events", "order.#")}
	ladder := topology.Options{Preset: topology.PresetDelayLadder, RetryDelays: tiers[:1], Prefix: "shop", Bindings: bound("shop.events", "order.*")}
	letter := topology.Options{Preset: topology.PresetDeadLetter, RetryDelay: brief, Prefix: "shop", Queue: "shop.orders", Bindings: bound("shop", "order.created")}
	demo := topology.Options{Preset: topology.PresetDelayLadder, Prefix: "demo", Queue: "demo.order_processor", Bindings: bound("demo.events", "order.process")}
	topic := topology.Options{Preset: topology.PresetTopicTiers, RetryDelays: tiers[:1]}
	typed := amqp.Table{"x-queue-type": "quorum"}
	given := []object{
		{name: "demo.order_processor", args: with(typed, argDLX, "", argDLKey, "demo.order_processor.dlq")}, {name: "demo.order_processor.dlq", args: typed},
	}
	for tier, delay := range map[string]time.Duration{"2s": 2 * time.Second, "5s": 5 * time.Second, "15s": 15 * time.Second} {
		args := with(typed, argTTL, delay.Milliseconds(), argDLX, "", argDLKey, "demo.order_processor")
		given = append(given, object{name: "demo.order_processor.delay_" + tier, args: args})
	}
	const once = "warning x-dead-letter-strategy"
	all := map[string]shape{
		"literal ladder": {
			options: demo, given: given, unhurried: true,
			finds: []string{once, once, once, limit},
		},
	}
	for name, s := range map[string]shape{
		"per queue":    {options: perQueue, given: queue("q.orders-svc")},
		"delay ladder": {options: ladder, given: queue("shop.svc")},
		"topic tiers":  {options: topic, given: queue("orders.svc")},
		"dead letter":  {options: letter, given: queue("shop.orders")},
	} {
		all[name] = s
		s.given, s.finds = queue(s.given[0].name, topology.ArgType, topology.TypeQuorum), []string{limit}
		all[name+", quorum"] = s
	}
	return all
}
